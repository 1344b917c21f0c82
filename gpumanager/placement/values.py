"""What placement works on: requests, the books of a node, and the two possible answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.units import CORES_PER_GPU, blocks


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
        """How many whole GPUs; 0 for a share of one."""
        return self.cores // CORES_PER_GPU


@dataclass(frozen=True, slots=True)
class GpuBook:
    """What is free on one GPU. processes: containers that hold a part of it."""

    free_cores: int
    free_blocks: int
    processes: int = 0

    @property
    def untouched(self) -> bool:
        """Nobody holds anything: it can be given whole."""
        return self.processes == 0 and self.free_cores == CORES_PER_GPU


@dataclass(frozen=True, slots=True)
class Books:
    """Who holds how much of each GPU of a node, by UUID. A value: changes make new books."""

    gpus: Mapping[GpuUUID, GpuBook] = field(default_factory=dict)

    @classmethod
    def empty(cls, topology: Topology) -> "Books":
        return cls({gpu.uuid: GpuBook(CORES_PER_GPU, blocks(gpu.memory)) for gpu in topology.gpus})

    def of(self, gpu: Gpu) -> GpuBook:
        return self.gpus[gpu.uuid]

    def occupy(self, gpu: GpuUUID, cores: int, memory_blocks: int) -> "Books":
        """Books in which one more container holds this much of `gpu`. Never checks room."""
        book = self.gpus[gpu]
        changed = replace(
            book,
            free_cores=book.free_cores - cores,
            free_blocks=book.free_blocks - memory_blocks,
            processes=book.processes + 1,
        )
        return Books({**self.gpus, gpu: changed})

    def without(self, gpus: Iterable[Gpu]) -> "Books":
        """Books in which nothing of these GPUs is free."""
        closed = {gpu.uuid: GpuBook(0, 0, self.of(gpu).processes) for gpu in gpus}
        return Books({**self.gpus, **closed}) if closed else self

    def take(self, grant: "Grant") -> "Books":
        """Books in which `grant` is held: a whole GPU with all its memory."""
        books = self
        for gpu in grant.gpus:
            if grant.whole:
                books = books.occupy(gpu.uuid, CORES_PER_GPU, blocks(gpu.memory))
            else:
                books = books.occupy(gpu.uuid, grant.request.cores, grant.request.blocks)
        return books


@dataclass(frozen=True, slots=True)
class Grant:
    """GPUs promised to one container, ordered by index, and why these, in one sentence."""

    request: Request
    evaluator: Evaluator
    gpus: tuple[Gpu, ...]
    why: str

    @property
    def whole(self) -> bool:
        return self.evaluator is not Evaluator.SHARE


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
