"""What placement works on: requests, what is free on GPUs, and the two possible answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.units import CORES_PER_GPU, blocks, count_of


class Evaluator(Enum):
    """Which rule decides: fewer than 100 cores share, exactly 100 fragment, more link."""

    SHARE = "share"
    FRAGMENT = "fragment"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Request:
    """What one container asks for.

    cores: percent of one GPU, 1-99, or 100 per whole GPU.
    blocks: memory blocks of 256 MiB; for whole GPUs the minimum each card must have.
    """

    cores: int
    blocks: int = 0

    @property
    def whole_gpus(self) -> int:
        """Return how many whole GPUs it asks for; 0 for a share of one."""
        return self.cores // CORES_PER_GPU

    @property
    def evaluator(self) -> Evaluator:
        """Return which rule decides about it, if it is valid."""
        if self.cores < CORES_PER_GPU:
            return Evaluator.SHARE
        return Evaluator.FRAGMENT if self.cores == CORES_PER_GPU else Evaluator.LINK


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one pod asks of a node. Pods with equal requests share every score.

    requests: what its containers that run together ask of GPUs; empty for a pod without GPUs.
    models: GPU models it may run on; empty for any.
    """

    requests: tuple[Request, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    models: frozenset[str] = frozenset()

    @property
    def cores(self) -> int:
        """Percent of a GPU, over all requests: 100 per whole GPU."""
        return sum(request.cores for request in self.requests)


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """GPUs granted to one container, ordered by index, and why these, in one sentence."""

    request: Request
    gpus: tuple[Gpu, ...]
    why: str

    @property
    def evaluator(self) -> Evaluator:
        """Return which rule chose them."""
        return self.request.evaluator

    @property
    def whole(self) -> bool:
        return self.request.whole_gpus > 0


class FreeGpu(NamedTuple):
    """What is free on one GPU. A tuple, because policies look states of GPUs up by the million.

    cores: percent. blocks: of memory. processes: containers that hold a part. memory: blocks of
    the whole card. On a GPU that may not be given nothing is free, even if no pod holds it.
    """

    cores: int
    blocks: int = 0
    processes: int = 0
    memory: int = 0

    @property
    def whole(self) -> bool:
        """Return whether no container holds a part: it can be given whole."""
        return self.cores == CORES_PER_GPU and not self.processes

    def fits(self, request: Request) -> bool:
        """Return whether a share fits, or one of the whole GPUs that `request` asks for."""
        if request.cores >= CORES_PER_GPU:
            return self.whole and self.blocks >= request.blocks
        return self.cores >= request.cores and self.blocks >= request.blocks

    def less(self, request: Request) -> "FreeGpu":
        """Return what one more container leaves with its part of `request`. Never checks room."""
        if request.cores >= CORES_PER_GPU:
            return FreeGpu(0, 0, self.processes + 1, self.memory)
        left = self.cores - request.cores, self.blocks - request.blocks
        return FreeGpu(*left, self.processes + 1, self.memory)


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """What is free on each GPU of a node, by UUID. A value: changes make a new one."""

    gpus: Mapping[GpuUUID, FreeGpu] = field(default_factory=dict)

    @classmethod
    def of_idle(cls, topology: Topology) -> "FreeGpus":
        return cls({gpu.uuid: idle_gpu(blocks(gpu.memory)) for gpu in topology.gpus})

    def of(self, gpu: Gpu) -> FreeGpu:
        return self.gpus[gpu.uuid]

    def occupy(self, gpu: GpuUUID, request: Request) -> "FreeGpus":
        """Add a container that holds its part of `request` on `gpu`. Never checks room."""
        return FreeGpus({**self.gpus, gpu: self.gpus[gpu].less(request)})

    def without(self, gpus: Iterable[Gpu]) -> "FreeGpus":
        """Close these GPUs: nothing of them is free."""
        closed = {gpu.uuid: self.of(gpu)._replace(cores=0, blocks=0) for gpu in gpus}
        return FreeGpus({**self.gpus, **closed}) if closed else self

    def take(self, grant: GpuChoice) -> "FreeGpus":
        """Add `grant`, which holds a whole GPU with all its memory."""
        taken = {gpu.uuid: self.of(gpu).less(grant.request) for gpu in grant.gpus}
        return FreeGpus({**self.gpus, **taken})


@dataclass(frozen=True, slots=True)
class FreeNode:
    """What is free on one node, and how much CPU and memory it has in all (`total_...`).

    gpus: in the order of the node. model: of its GPUs.
    """

    name: str
    model: str
    gpus: tuple[FreeGpu, ...]
    cpu_milli: int
    memory_mib: int
    total_cpu_milli: int
    total_memory_mib: int


def idle_gpu(memory: int = 0) -> FreeGpu:
    """Return an unused GPU of so many memory blocks."""
    return FreeGpu(CORES_PER_GPU, memory, 0, memory)


class Reason(Enum):
    """Why a request is refused; the value starts the sentence shown to the user."""

    NOT_A_REQUEST = "not a valid request"
    NO_MEMORY_ASKED = "a share of a GPU needs memory"
    TOO_LARGE = "larger than any GPU here"
    NO_FREE_GPU = "no free GPU"
    NOT_NEAR = "no free GPUs near enough to each other"


@dataclass(frozen=True, slots=True)
class Refusal:
    """No: the reason, and the numbers that make it so."""

    request: Request
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


def check(request: Request) -> Refusal | None:
    """Refuses what no machine could grant."""
    if request.cores <= 0:
        return _invalid(request, f"{request.cores} cores asked; the least is 1")
    if request.blocks < 0:
        return _invalid(request, f"{request.blocks} memory blocks asked; the least is 0")
    if request.cores > CORES_PER_GPU and request.cores % CORES_PER_GPU:
        return _invalid(
            request, f"{request.cores} cores asked; above 100 only multiples of 100 can be granted"
        )
    if request.cores < CORES_PER_GPU and not request.blocks:
        asked = f"{count_of(request.cores, 'core')} and no memory asked"
        detail = f"{asked}; ask for at least 1 block of 256 MiB"
        return Refusal(request, Reason.NO_MEMORY_ASKED, detail)
    return None


def _invalid(request: Request, detail: str) -> Refusal:
    return Refusal(request, Reason.NOT_A_REQUEST, detail)
