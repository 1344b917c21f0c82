"""Shares and memory of the last minutes, small enough to be kept for every container of a node.

A ring of samples: one byte for a share and two for memory, in arrays. A container that never used a
GPU costs nothing, and one that is gone stays until its last sample has left the ring. A share is of
the whole time between two looks that are kept, by what was paid for, so none is missed between
them.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, Snapshot
from gpumanager.units import MIB, Bytes

HISTORY_STEPS: Final = 300
STEP_SECONDS: Final = 1.0
MINUTE_SECONDS: Final = 60.0
SERIES: Final = 512
"""Of containers, each on one GPU. One that comes when there are as many has none."""

STEPS_A_PERCENT: Final = 2
UNIT: Final = 8 * MIB
MISSING: Final = 0xFF
NO_MEMORY: Final = 0xFFFF
SLACK: Final = 0.9
"""Of a step: looks are a period and a moment apart, never less than one by much."""

Key = tuple[AllocationID, GpuUUID]
K = TypeVar("K")


class HistoryRow:
    """One ring beside the others. charged_ns, throttled_ns: totals when it was last written."""

    __slots__ = ("charged_ns", "last", "memory", "percent", "throttled", "throttled_ns")

    def __init__(self, looks: int) -> None:
        self.percent = bytearray(b"\xff" * looks)
        self.memory = array("H", [NO_MEMORY]) * looks
        self.throttled = bytearray(b"\xff" * looks)
        self.charged_ns = 0
        self.throttled_ns = 0
        self.last = 0

    def write(
        self,
        slot: int,
        percent: float | None,
        memory: Bytes | None,
        throttled: float | None = None,
    ) -> None:
        """throttled: percent of the time; one byte holds it too."""
        self.percent[slot] = _byte(percent)
        self.throttled[slot] = _byte(throttled)
        self.memory[slot] = NO_MEMORY if memory is None else min(memory // UNIT, NO_MEMORY - 1)


@dataclass(frozen=True, slots=True)
class Series:
    """From the oldest look to the newest; None: it was not there, or nobody told.

    percent: of the GPU's time, in steps of a half. memory_mib: in steps of 8.
    who: namespace, pod and container; empty for the GPU as a whole.
    """

    gpu: Gpu
    who: tuple[str, ...]
    percent: str
    memory_mib: str


@dataclass(slots=True)
class HistoryMember:
    """The ring of a container on a GPU."""

    gpu: Gpu
    who: tuple[str, ...]
    row: HistoryRow


@dataclass(slots=True)
class ShareHistory:
    """Told of each look; keeps one a second. looks: how many."""

    looks: int = HISTORY_STEPS
    step: float = STEP_SECONDS
    most: int = SERIES
    kept: int = 0
    """How many looks were kept so far."""
    _times: "array[float]" = field(default_factory=lambda: array("d"))
    _gpus: dict[GpuUUID, HistoryMember] = field(default_factory=dict)
    _members: dict[Key, HistoryMember] = field(default_factory=dict)

    def note(self, snapshot: Snapshot) -> None:
        """Keep one more look, if it is time for one."""
        since = snapshot.at - self._times[(self.kept - 1) % self.looks] if self.kept else None
        if since is not None and since < self.step * SLACK:
            return
        if len(self._times) < self.looks:
            self._times.append(snapshot.at)
        slot = self.kept % self.looks
        self._times[slot] = snapshot.at
        _blank(self._gpus, slot, self.kept - self.looks)
        _blank(self._members, slot, self.kept - self.looks)
        for gpu in snapshot.gpus:
            if gpu.status is not None:
                member = self._gpus.get(gpu.gpu.uuid)
                if member is None:
                    member = HistoryMember(gpu.gpu, (), HistoryRow(self.looks))
                    self._gpus[gpu.gpu.uuid] = member
                member.row.write(slot, gpu.status.percent, gpu.status.memory_used)
                member.row.last = self.kept
        for view in snapshot.containers:
            for device in view.devices:
                self._note_device(view, device, slot, since)
        self.kept += 1

    def ages(self) -> list[float]:
        """Return the ages of the looks, in seconds before the newest; the oldest first."""
        newest = self._times[(self.kept - 1) % self.looks] if self.kept else 0.0
        return [round(newest - self._times[slot], 1) for slot in self._order()]

    def throttled(self, grant: AllocationID, gpu: GpuUUID) -> float | None:
        """Return the percent of the last minute that its launches were throttled, if known."""
        member = self._members.get((grant, gpu))
        if member is None:
            return None
        looks = zip(self.ages(), self._order(), strict=True)
        minute = (member.row.throttled[slot] for age, slot in looks if age < MINUTE_SECONDS)
        known = [steps / STEPS_A_PERCENT for steps in minute if steps != MISSING]
        return round(sum(known) / len(known), 1) if known else None

    def series(self) -> Iterator[Series]:
        """Yield those of GPUs, then of containers; none for those that never used any.

        May be read as slowly as one likes: what has left the ring meanwhile is missing.
        """
        order, begun = self._order(), self.kept
        for member in (*self._gpus.values(), *self._members.values()):
            lost = max(0, len(order) + self.kept - begun - self.looks)
            nothing, row = ["null"] * min(lost, len(order)), member.row
            percent = nothing + [PERCENTS[row.percent[slot]] for slot in order[lost:]]
            units = [row.memory[slot] for slot in order[lost:]]
            memory = nothing + ["null" if u == NO_MEMORY else str(u * UNIT // MIB) for u in units]
            yield Series(member.gpu, member.who, ",".join(percent), ",".join(memory))

    def _order(self) -> list[int]:
        count = min(self.kept, self.looks)
        return [slot % self.looks for slot in range(self.kept - count, self.kept)]

    def _note_device(
        self, view: ContainerSnapshot, device: DeviceView, slot: int, since: float | None
    ) -> None:
        key = (view.grant.id, device.gpu.uuid)
        memory = device.measured if view.whole else device.used
        member = self._members.get(key)
        if member is None:
            if not (memory or device.charged_ns or device.percent):
                return
            if len(self._members) >= self.most:
                return
            member = self._members[key] = HistoryMember(
                device.gpu, view.labels, HistoryRow(self.looks)
            )
            since = None
        row = member.row
        if view.whole:
            row.write(slot, device.percent, memory)
        else:
            late = since and _rate(device.throttled_ns - row.throttled_ns, since)
            share = _rate(device.charged_ns - row.charged_ns, since) if since else device.share
            row.write(slot, share, memory, late)
        row.last, row.charged_ns = self.kept, device.charged_ns
        row.throttled_ns = device.throttled_ns


def _blank(members: dict[K, HistoryMember], slot: int, forgotten: int) -> None:
    """Empty a slot until something is noted. forgotten: drop rows that end with this look."""
    for key, member in tuple(members.items()):
        if member.row.last <= forgotten:
            del members[key]
        else:
            member.row.write(slot, None, None)


def _rate(nanoseconds: int, seconds: float) -> float:
    """Return percent of this time. Processes that wait side by side come to 100 together."""
    return min(100.0, max(0, nanoseconds) / seconds / 1e7)


def _byte(percent: float | None) -> int:
    return MISSING if percent is None else round(percent * STEPS_A_PERCENT)


PERCENTS: Final = (
    *(f"{step / STEPS_A_PERCENT:g}" for step in range(100 * STEPS_A_PERCENT + 1)),
    *("null" for _ in range(100 * STEPS_A_PERCENT + 1, MISSING + 1)),
)
"""As JSON has them, by the byte."""
