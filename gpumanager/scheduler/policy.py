"""Which of the nodes that have room is the best one: the rule, and the simplest one. Pure."""

from dataclasses import dataclass
from typing import Protocol

from gpumanager.placement.values import Request


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod needs of a node. requests: of its containers, as Kubernetes counts them."""

    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """What is free on one GPU. index: its position on the node. blocks: all it has."""

    index: int
    free_cores: int
    free_blocks: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What is free on one node."""

    gpus: tuple[GpuRoom, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Higher is better. gpus: for each request the indices it would take; empty: as the node."""

    points: float
    gpus: tuple[tuple[int, ...], ...] = ()


class Policy(Protocol):
    """Scores one node for one ask; it sees no name, so equal rooms have equal scores."""

    def score(self, room: NodeRoom, ask: Ask) -> Score | None:
        """None: it will not have the pod there."""
        ...


class LeastLeftOver:
    """The node on which the least is left over; the GPUs on it are the node's own choice."""

    def score(self, room: NodeRoom, ask: Ask) -> Score | None:
        asked = sum(request.cores for request in ask.requests)
        cores = sum(gpu.free_cores for gpu in room.gpus)
        memory = sum(gpu.free_blocks for gpu in room.gpus)
        return Score(-(cores - asked) - memory / (1 + sum(gpu.blocks for gpu in room.gpus)))
