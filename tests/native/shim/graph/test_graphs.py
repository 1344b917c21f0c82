"""Memory of graphs behind the shim, over the simulated driver, whose own account is the truth."""

from collections.abc import Mapping

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.native.gpu_node import GpuNode, accounts
from tests.native.shim.graph.graph_limits import LIMIT, told
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container(LIMIT)


CASES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "a graph that frees what it allocates keeps the books right over ten launches": (
        """
e = ready(graph(3 * MIB, 5 * MIB))
before = books()
held = []
for _ in range(10):
    launch(e)
    held.append(books())
    assert right()
tell(before=before, held=sorted(set(held)))
""",
        {"before": 0, "held": [10 * MIB], "peak": 10 * MIB},
    ),
    "graphs that share memory are charged for it once": (
        """
small, large, keeper = ready(graph(8 * MIB)), ready(graph(40 * MIB)), None
held = []
for executable in small, large, small, ready(graph(4 * MIB, keep=True)), large:
    launch(executable)
    held.append(books() // MIB)
    assert right()
tell(held=held)
""",
        {"held": [8, 40, 40, 40, 44]},
    ),
    "a launch beyond the limit is refused and succeeds when there is room": (
        """
e = ready(graph(160 * MIB))
plain = done(cu.cuMemAlloc(100 * MIB))
first, again = refused(cu.cuGraphLaunch(e, stream)), refused(cu.cuGraphUpload(e, stream))
held = books()
done(cu.cuMemFree(plain))
launch(e)
tell(first=first, again=again, held=held, launched=books())
""",
        {
            "first": "CUDA_ERROR_OUT_OF_MEMORY",
            "again": "CUDA_ERROR_OUT_OF_MEMORY",
            "held": 100 * MIB,
            "launched": 160 * MIB,
            "peak": 160 * MIB,
        },
    ),
    "a graph launched again is not refused at a full limit": (
        """
e = ready(graph(LIMIT // 2))
launch(e)
done(cu.cuMemAlloc(LIMIT // 2))
for _ in range(5):
    launch(e)
tell(left=done(cu.cuMemGetInfo())[0])
""",
        {"left": 0, "peak": LIMIT},
    ),
    "a graph whose memory was trimmed must find room again": (
        """
e = ready(graph(160 * MIB))
launch(e)
done(cu.cuStreamSynchronize(stream))
done(cu.cuDeviceGraphMemTrim(device))
plain = done(cu.cuMemAlloc(100 * MIB))
code = refused(cu.cuGraphLaunch(e, stream))
done(cu.cuMemFree(plain))
launch(e)
tell(code=code)
""",
        {"code": "CUDA_ERROR_OUT_OF_MEMORY"},
    ),
    "a graph launched again needs room for what others have kept since": (
        """
e, (_, address) = ready(graph(100 * MIB)), alloc(keeper := graph(), [], 100 * MIB)
launch(e)
launch(ready(keeper))
done(cu.cuMemAlloc(100 * MIB))
held, code = books() // MIB, refused(cu.cuGraphLaunch(e, stream))
done(cu.cuMemFreeAsync(address, stream))
done(cu.cuStreamSynchronize(stream))
launch(e)
tell(held=held, code=code)
""",
        {"held": 200, "code": "CUDA_ERROR_OUT_OF_MEMORY"},
    ),
    "graphs of one stream need what the largest does and not the sum": (
        """
first, second = ready(graph(160 * MIB)), ready(graph(64 * MIB, 64 * MIB))
for _ in range(20):
    launch(first)
    launch(second)
tell(held=books())
""",
        {"held": 160 * MIB, "peak": 160 * MIB},
    ),
    "graphs that run in other streams are waited for where there is no room for all": (
        """
streams = [done(cu.cuStreamCreate(1)) for _ in range(3)]
made = []
for size in 160, 96, 128:
    made.append(done(cu.cuGraphCreate(0)))
    node, address = alloc(made[-1], [], size * MIB)
    free(made[-1], [kernel(made[-1], [node], 1000)], address)
made = [ready(each) for each in made]
for _ in range(5):
    for executable, own in zip(made, streams):
        done(cu.cuGraphLaunch(executable, own))
done(cu.cuCtxSynchronize())
tell(enough=truth() >= 160 * MIB)
""",
        {"enough": True},
    ),
    "what graphs do not use makes room for other allocations": (
        """
launch(ready(graph(160 * MIB)))
done(cu.cuStreamSynchronize(stream))
plain = done(cu.cuMemAlloc(200 * MIB))
held = books() // MIB
done(cu.cuMemFree(plain))
launch(ready(graph(160 * MIB)))
done(cu.cuStreamSynchronize(stream))
done(cu.cuMemAllocAsync(200 * MIB, stream))
tell(held=held)
""",
        {"held": 200},
    ),
    "a trim gives back all but what is still allocated": (
        """
_, address = alloc(kept := graph(), [], 6 * MIB)
for executable in ready(kept), ready(graph(32 * MIB)):
    launch(executable)
before = books() // MIB
done(cu.cuStreamSynchronize(stream))
done(cu.cuDeviceGraphMemTrim(device))
trimmed = books() // MIB
assert right()
done(cu.cuMemFreeAsync(address, stream))
freed = books() // MIB
done(cu.cuDeviceGraphMemTrim(device))
tell(before=before, trimmed=trimmed, freed=freed, last=books())
""",
        {"before": 38, "trimmed": 6, "freed": 6, "last": 0},
    ),
    "memory stays charged when its graph is destroyed until it is trimmed": (
        """
e = ready(graph(8 * MIB))
launch(e)
done(cu.cuGraphExecDestroy(e))
destroyed = books()
assert right()
done(cu.cuStreamSynchronize(stream))
done(cu.cuDeviceGraphMemTrim(device))
tell(destroyed=destroyed, trimmed=books())
""",
        {"destroyed": 8 * MIB, "trimmed": 0},
    ),
    "captured allocations are charged when their graph is launched": (
        """
capture()
address = done(cu.cuMemAllocAsync(32 * MIB, stream))
run(1)
during = books()
done(cu.cuMemFreeAsync(address, stream))
g = captured()
e = ready(g)
captured_ = books()
launch(e)
tell(kinds=kinds(g), during=during, captured=captured_, launched=books())
""",
        {
            "kinds": ["MEM_ALLOC", "KERNEL", "MEM_FREE"],
            "during": 0,
            "captured": 0,
            "launched": 32 * MIB,
        },
    ),
    "memory of graphs inside a graph counts": (
        """
def inside(inner):
    outer = graph(2 * MIB)
    params = cu.CUgraphNodeParams()
    params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    params.graph.graph = inner
    params.graph.ownership = (
        cu.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    done(cu.cuGraphAddNode(outer, [], None, 0, params))
    return outer
fits = ready(inside(inside(graph(100 * MIB))))
launch(fits)
held = books()
too_much = ready(inside(inside(graph(253 * MIB))))
tell(held=held, refused=refused(cu.cuGraphLaunch(too_much, stream)))
""",
        {"held": 104 * MIB, "refused": "CUDA_ERROR_OUT_OF_MEMORY"},
    ),
    "addresses that are used twice in a graph are charged once": (
        """
g, after = graph(), []
for _ in range(10):
    node, address = alloc(g, after, 40 * MIB)
    after = [free(g, [node], address)]
launch(ready(g))
tell(held=books())
""",
        {"held": 40 * MIB},
    ),
    "an updated graph keeps what it needed": (
        """
def plain(microseconds):
    made = graph()
    kernel(made, [], microseconds)
    return made
e = ready(plain(1))
done(cu.cuGraphExecUpdate(e, plain(2)))
launch(e)
held = books()
needing = ready(graph(4 * MIB))
code = cu.cuGraphExecUpdate(needing, plain(2))[0].name
launch(needing)
tell(held=held, code=code, launched=books())
""",
        {"held": 0, "code": "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "launched": 4 * MIB},
    ),
    "memory freed at the next launch is not charged twice": (
        """
e = ready(graph(30 * MIB, keep=True), 1)  # AUTO_FREE_ON_LAUNCH
for _ in range(4):
    launch(e)
    assert right()
tell(held=books())
""",
        {"held": 30 * MIB},
    ),
}
"""The rule, a program that keeps to it, and what it tells; `peak` is the most that it held."""


@pytest.mark.parametrize("rule", CASES)
async def test_a_program_with_graphs_is_charged_what_they_take_and_held_to_the_limit(
    container: Container, gpu: SimulatedGpus, rule: str
) -> None:
    script, expected = CASES[rule]

    answer = await told(container, f"{script}\ntell(right=right())")

    (account,) = accounts(gpu)
    answer["peak"] = account.bytes_peak
    assert answer == {"right": True, "peak": account.bytes_peak, **expected}
    assert account.bytes_peak <= LIMIT
    assert account.refused == 0


@pytest.mark.parametrize("depth", [17, 100, 1000])
async def test_graphs_nest_as_deep_as_the_driver_takes_them(
    container: Container, depth: int
) -> None:
    answer = await told(
        container,
        f"""
def inside(inner):
    outer = graph()
    done(cu.cuGraphAddChildGraphNode(outer, [], 0, inner))
    done(cu.cuGraphDestroy(inner))
    return outer
def nested(innermost):
    for _ in range({depth}):
        innermost = inside(innermost)
    return innermost
def moved(innermost):
    for _ in range({depth}):
        outer, params = graph(), cu.CUgraphNodeParams()
        params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
        params.graph.graph = innermost
        params.graph.ownership = (
            cu.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        done(cu.cuGraphAddNode(outer, [], None, 0, params))
        innermost = outer
    return innermost
plain = graph()
kernel(plain, [], 1)
launch(ready(nested(plain)))
held = [books()]
launch(ready(moved(graph(100 * MIB))))
held.append(books() // MIB)
tell(held=held, refused=refused(cu.cuGraphLaunch(ready(moved(graph(257 * MIB))), stream)),
     right=right())
""",
    )

    assert answer == {"held": [0, 100], "refused": "CUDA_ERROR_OUT_OF_MEMORY", "right": True}
