"""The journal: every promise made about GPUs, as values.

One `Allocation` is one admission of one container. It is *answered* once Allocate promised it and
*settled* once PreStartContainer has learnt which container it is for. A *released* one holds
nothing any more and waits only for its directory to be removed.

How it is put into words is in `journal_text`, how it is kept on the disk in `journal_file`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import zip_longest
from typing import Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.kubelet.pods import PodUID
from gpumanager.names import VCORE
from gpumanager.placement.values import Evaluator
from gpumanager.virtual.values import AllocationID

FEW: Final = 4
"""More than so many at once are no usual change."""


class State(Enum):
    """Whom an allocation is for: guessed at best, or known."""

    ANSWERED = "answered"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Claimant:
    """A container of a pod."""

    uid: PodUID
    namespace: str
    name: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.container})"


@dataclass(frozen=True, slots=True)
class Allocation:
    """One promise.

    admission: shared by the containers of one pod, which may reuse each other's device IDs.
    gpus: where the capacity really is; it may differ from what the IDs name.
    ceiling: percent of the GPU it may burst up to; None: what it asked for.
    burst_us: how much unused GPU time it may save up; 0: the shim's own choice.
    candidate: who it was thought to be for; pod: who it is for.
    doubted: the kubelet has since given its devices to another pod, so its own was rejected or has
    ended, and nobody has told us; it counts nowhere unless it is settled after all.
    inherited: gpu-manager promised it before us; its containers have the directory that it made.
    time: seconds since the epoch, of the first answer.
    """

    allocation: AllocationID
    admission: str
    core_ids: tuple[str, ...]
    memory_ids: tuple[str, ...]
    gpus: tuple[GpuUUID, ...]
    evaluator: Evaluator
    why: str
    time: float
    state: State = State.ANSWERED
    ceiling: int | None = None
    burst_us: int = 0
    candidate: Claimant | None = None
    pod: Claimant | None = None
    doubted: bool = False
    released: bool = False
    inherited: bool = False

    @property
    def cores(self) -> int:
        return len(self.core_ids)

    @property
    def blocks(self) -> int:
        return len(self.memory_ids)

    @property
    def whole(self) -> bool:
        return self.evaluator is not Evaluator.SHARE

    @property
    def owner(self) -> PodUID | None:
        """The pod it is for, as far as known."""
        claimant = self.pod or self.candidate
        return claimant.uid if claimant else None

    def ids(self, resource: str) -> tuple[str, ...]:
        return self.core_ids if resource == VCORE else self.memory_ids

    def with_ids(self, resource: str, ids: tuple[str, ...]) -> "Allocation":
        if resource == VCORE:
            return replace(self, core_ids=ids)
        return replace(self, memory_ids=ids)


@dataclass(frozen=True, slots=True)
class Journal:
    """All allocations, by their names, oldest first. A value: changes make new journals."""

    allocations: Mapping[AllocationID, Allocation] = field(default_factory=dict)

    def get(self, allocation: AllocationID) -> Allocation | None:
        return self.allocations.get(allocation)

    def settled(self, allocation: AllocationID) -> Claimant | None:
        """Whom it is for, once that is known for certain."""
        known = self.allocations.get(allocation)
        return known.pod if known and known.state is State.SETTLED else None

    def settled_pod(self, allocation: AllocationID) -> PodUID | None:
        claimant = self.settled(allocation)
        return claimant.uid if claimant else None

    def live(self) -> tuple[Allocation, ...]:
        """Those that hold something."""
        return tuple(a for a in self.allocations.values() if not a.released)

    def put(self, *changed: Allocation) -> "Journal":
        return Journal({**self.allocations, **{a.allocation: a for a in changed}})

    def release(self, names: Iterable[AllocationID]) -> "Journal":
        """They hold nothing from now on."""
        return self.put(*(replace(self.allocations[name], released=True) for name in names))

    def doubt(self, names: Iterable[AllocationID]) -> "Journal":
        """Others have been given what they hold."""
        return self.put(*(replace(self.allocations[name], doubted=True) for name in names))

    def drop(self, names: Iterable[AllocationID]) -> "Journal":
        """Forget them."""
        dropped = set(names)
        return Journal({n: a for n, a in self.allocations.items() if n not in dropped})


def differences(before: Journal, after: Journal) -> tuple[list[Allocation], list[Allocation]]:
    """What only the one has, and what only the other; allocations are never altered.

    Most changes put one at the end or in the place of its former self, which is seen at once.
    """
    old, new = before.allocations, after.allocations
    if len(new) - len(old) in (0, 1):
        pairs = zip_longest(old.values(), new.values())
        unlike = [(a, b) for a, b in pairs if a is not b]
        if len(unlike) <= FEW:
            return [a for a, _ in unlike if a], [b for _, b in unlike if b]
    gone = [a for name, a in old.items() if new.get(name) is not a]
    return gone, [a for name, a in new.items() if old.get(name) is not a]
