"""GPU time and memory of the last minutes, for every container of a node in less than a megabyte.

Each container has a ring of samples for each GPU it uses: one byte for a percentage, two bytes for
memory. One that never used a GPU has no ring; one that is gone keeps its ring until its last sample
is overwritten. A percentage covers all of the time since the sample before: it is computed from
totals, so that nothing in between is missed.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, Snapshot
from gpumanager.units import MIB, Bytes

SAMPLES: Final = 300
PERIOD_SECONDS: Final = 1.0
EARLIEST: Final = 0.9
"""Part of a period after which the next snapshot is kept: snapshots do not come exactly on time."""

MINUTE_SECONDS: Final = 60.0
MOST_RINGS: Final = 512
"""Of containers. Containers beyond that are not recorded."""

STEPS_PER_PERCENT: Final = 2
MEMORY_STEP: Final = 8 * MIB
NO_PERCENT: Final = 0xFF
NO_MEMORY: Final = 0xFFFF

Key = tuple[AllocationID, GpuUUID]
K = TypeVar("K")


class Ring:
    """Samples of one GPU, or of one container on it. container: namespace, pod and name; empty for
    the GPU itself. last: number of the last sample. charged_ns, throttled_ns: totals by then."""

    def __init__(self, gpu: Gpu, container: tuple[str, ...], samples: int) -> None:
        self.gpu = gpu
        self.container = container
        self.percent = bytearray([NO_PERCENT]) * samples
        self.memory = array("H", [NO_MEMORY]) * samples
        self.throttled = bytearray([NO_PERCENT]) * samples
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
        """percent: of the GPU's time. throttled: percent of the time. None: not known."""
        self.percent[slot] = _byte(percent)
        self.throttled[slot] = _byte(throttled)
        steps = NO_MEMORY if memory is None else min(memory // MEMORY_STEP, NO_MEMORY - 1)
        self.memory[slot] = steps


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of a ring, the oldest first, as the inside of a JSON array; null: not known.

    percent: of the GPU's time, in steps of a half. memory_mib: in steps of 8.
    container: as of the ring.
    """

    gpu: Gpu
    container: tuple[str, ...]
    percent: str
    memory_mib: str


@dataclass(slots=True)
class ShareHistory:
    """Keeps one snapshot per period. samples: how many a ring has. count: of all kept so far."""

    samples: int = SAMPLES
    period: float = PERIOD_SECONDS
    most_rings: int = MOST_RINGS
    count: int = 0
    _times: "array[float]" = field(default_factory=lambda: array("d"))
    _gpus: dict[GpuUUID, Ring] = field(default_factory=dict)
    _containers: dict[Key, Ring] = field(default_factory=dict)

    def note(self, snapshot: Snapshot) -> None:
        """Keep this snapshot, if a period has passed since the last one."""
        elapsed = snapshot.at - self._times[(self.count - 1) % self.samples] if self.count else None
        if elapsed is not None and elapsed < self.period * EARLIEST:
            return
        if len(self._times) < self.samples:
            self._times.append(snapshot.at)
        slot = self.count % self.samples
        self._times[slot] = snapshot.at
        self._clear(self._gpus, slot)
        self._clear(self._containers, slot)
        for gpu in snapshot.gpus:
            if gpu.status is not None:
                ring = self._gpus.get(gpu.gpu.uuid)
                if ring is None:
                    ring = self._gpus[gpu.gpu.uuid] = Ring(gpu.gpu, (), self.samples)
                ring.write(slot, gpu.status.percent, gpu.status.memory_used)
                ring.last = self.count
        for container in snapshot.containers:
            for device in container.devices:
                self._note_device(container, device, slot, elapsed)
        self.count += 1

    def ages(self) -> list[float]:
        """Return how many seconds each sample is older than the newest; the oldest first."""
        newest = self._times[(self.count - 1) % self.samples] if self.count else 0.0
        return [round(newest - self._times[slot], 1) for slot in self._slots()]

    def throttled(self, grant: AllocationID, gpu: GpuUUID) -> float | None:
        """Return for what percentage of the last minute launches were throttled, if known."""
        ring = self._containers.get((grant, gpu))
        if ring is None:
            return None
        samples = zip(self.ages(), self._slots(), strict=True)
        minute = (ring.throttled[slot] for age, slot in samples if age < MINUTE_SECONDS)
        known = [steps / STEPS_PER_PERCENT for steps in minute if steps != NO_PERCENT]
        return round(sum(known) / len(known), 1) if known else None

    def series(self) -> Iterator[Series]:
        """Yield the series of GPUs, then of containers.

        New snapshots may come between two series: samples that they overwrite are null then.
        """
        slots, begun = self._slots(), self.count
        for ring in (*self._gpus.values(), *self._containers.values()):
            lost = min(max(0, len(slots) + self.count - begun - self.samples), len(slots))
            kept = slots[lost:]
            percent = [PERCENTS[ring.percent[slot]] for slot in kept]
            steps = [ring.memory[slot] for slot in kept]
            memory = ["null" if n == NO_MEMORY else str(n * MEMORY_STEP // MIB) for n in steps]
            texts = (",".join(["null"] * lost + values) for values in (percent, memory))
            yield Series(ring.gpu, ring.container, *texts)

    def _slots(self) -> list[int]:
        """Return where the samples stand in each ring, the oldest first."""
        first = max(0, self.count - self.samples)
        return [number % self.samples for number in range(first, self.count)]

    def _note_device(
        self, container: ContainerSnapshot, device: DeviceView, slot: int, elapsed: float | None
    ) -> None:
        key = (container.grant.id, device.gpu.uuid)
        memory = device.measured if container.whole else device.used
        ring = self._containers.get(key)
        if ring is None:
            used = memory or device.charged_ns or device.percent
            if not used or len(self._containers) >= self.most_rings:
                return
            ring = self._containers[key] = Ring(device.gpu, container.labels, self.samples)
            elapsed = None  # the totals are of a longer time
        if container.whole:
            ring.write(slot, device.percent, memory)
        elif elapsed:
            share = _percent_of(elapsed, device.charged_ns - ring.charged_ns)
            throttled = _percent_of(elapsed, device.throttled_ns - ring.throttled_ns)
            ring.write(slot, share, memory, throttled)
        else:
            ring.write(slot, device.share, memory)
        ring.last, ring.charged_ns = self.count, device.charged_ns
        ring.throttled_ns = device.throttled_ns

    def _clear(self, rings: dict[K, Ring], slot: int) -> None:
        """Empty this slot of each ring; drop rings whose last sample was there."""
        for key, ring in tuple(rings.items()):
            if ring.last <= self.count - self.samples:
                del rings[key]
            else:
                ring.write(slot, None, None)


def _percent_of(seconds: float, nanoseconds: int) -> float:
    """Return at most 100: processes that wait at the same time are summed up."""
    return min(100.0, max(0, nanoseconds) / seconds / 1e7)


def _byte(percent: float | None) -> int:
    return NO_PERCENT if percent is None else round(percent * STEPS_PER_PERCENT)


PERCENTS: Final = (
    *(f"{step / STEPS_PER_PERCENT:g}" for step in range(100 * STEPS_PER_PERCENT + 1)),
    *("null" for _ in range(100 * STEPS_PER_PERCENT + 1, NO_PERCENT + 1)),
)
"""The JSON text for each byte."""
