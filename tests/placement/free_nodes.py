"""Nodes and pods of any shape, and whether an answer can be kept."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from gpumanager.placement.values import FreeGpu, FreeNode, PodRequest, Request, idle_gpu
from gpumanager.placement.workload_mix import Mix, mix_of

MODELS = ("T4", "V100")


@st.composite
def free_gpus(draw: st.DrawFn) -> FreeGpu:
    """Some whole, some taken, some in part."""
    blocks = draw(st.sampled_from([0, 16, 64]))
    kind = draw(st.sampled_from(["whole", "whole", "taken", "part"]))
    if kind == "whole":
        return idle_gpu(blocks)
    if kind == "taken":
        return FreeGpu(0, 0, 1, blocks)
    processes = draw(st.integers(1, 3))
    return FreeGpu(draw(st.integers(0, 99)), draw(st.integers(0, blocks)), processes, blocks)


@st.composite
def rooms(draw: st.DrawFn) -> FreeNode:
    gpus = tuple(draw(free_gpus()) for _ in range(draw(st.integers(0, 8))))
    cpu, memory = draw(st.integers(0, 64)), draw(st.integers(0, 64))
    model = draw(st.sampled_from(MODELS))
    return FreeNode("node", model, gpus, 1000 * cpu, 1024 * memory, 64_000, 65_536)


shares = st.builds(Request, st.sampled_from([1, 20, 25, 33, 50, 60, 99]), st.integers(0, 20))
wholes = st.builds(Request, st.sampled_from([100, 200, 400, 800]), st.sampled_from([0, 16, 60]))


def asks(most: int = 3) -> st.SearchStrategy[PodRequest]:
    return st.builds(
        PodRequest,
        st.lists(shares | wholes, max_size=most).map(tuple),
        st.integers(0, 16).map(lambda cpus: 1000 * cpus),
        st.integers(0, 16).map(lambda gib: 1024 * gib),
        st.sampled_from([frozenset[str](), frozenset({"T4"}), frozenset(MODELS)]),
    )


def living(mix: Mix, leaving: float) -> Mix:
    """The same pods, of which so many leave."""
    return replace(mix, leaving=leaving)


mixes = st.builds(
    living,
    st.lists(st.tuples(asks(), st.floats(0.1, 10)), max_size=6).map(mix_of),
    st.sampled_from([0.0, 0.0, 0.3, 1.0]),
)


def flaws(room: FreeNode, ask: PodRequest, gpus: Sequence[Sequence[int]]) -> list[str]:
    """Why the ask cannot have these; empty where it can. Written without the code under test."""
    cores = {index: gpu.cores for index, gpu in enumerate(room.gpus)}
    blocks = {index: gpu.blocks for index, gpu in enumerate(room.gpus)}
    whole = {index: gpu.memory for index, gpu in enumerate(room.gpus)}
    found = []
    if ask.cpu_milli > room.cpu_milli or ask.memory_mib > room.memory_mib:
        found.append("host")
    if ask.requests and ask.models and room.model not in ask.models:
        found.append("model")
    if len(gpus) != len(ask.requests):
        return [*found, "number of requests"]
    for request, indices in zip(ask.requests, gpus, strict=True):
        count = max(1, request.cores // 100)
        if list(indices) != sorted(set(indices)) or len(indices) != count:
            found.append(f"{indices} for {request}")
        for index in indices:
            if request.cores >= 100:
                idle = cores[index] == 100 and blocks[index] == whole[index] >= request.blocks
                found += [] if idle else [f"GPU {index} is not whole"]
                cores[index] = blocks[index] = 0
            else:
                cores[index] -= request.cores
                blocks[index] -= request.blocks
    return found + [f"GPU {index}" for index in cores if min(cores[index], blocks[index]) < 0]


def usual(*weights: tuple[int, int, float]) -> Mix:
    """Cores, CPUs and weight of each typical ask."""
    return mix_of(
        [(PodRequest((Request(cores),), 1000 * cpus), weight) for cores, cpus, weight in weights],
        1.0,
    )


def room(*free: int, cpus: int = 64, name: str = "node", model: str = "T4") -> FreeNode:
    """A node by the free cores of its GPUs."""
    gpus = tuple(FreeGpu(cores, processes=cores < 100) for cores in free)
    return FreeNode(name, model, gpus, 1000 * cpus, 65_536, 64_000, 65_536)


def ask(*cores: int, cpus: int = 1) -> PodRequest:
    return PodRequest(tuple(Request(one) for one in cores), 1000 * cpus)
