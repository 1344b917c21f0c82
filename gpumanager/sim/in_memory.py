"""The agent's seams and clocks in memory: each remembers what it is told, answers what is set."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.pod import PodView
from gpumanager.kubelet.pods import PodsUnavailable
from gpumanager.limits.pausing import Cgroup
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage, Limit
from gpumanager.runtime.status import LiveContainer
from gpumanager.sim.clock import NS


@dataclass
class SimulatedLimits:
    """An `AllocationServer`. kept: allocations that have a directory. open_now: those served.
    drivers: by allocation, the name of the folder its link leads to."""

    root: Path = Path("/vm")
    kept: dict[AllocationID, tuple[Limit, ...]] = field(default_factory=dict)
    open_now: dict[AllocationID, tuple[Limit, ...]] = field(default_factory=dict)
    drivers: dict[AllocationID, str] = field(default_factory=dict)
    failing: bool = False
    takes_turns: bool = False

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        if self.failing:
            raise OSError("no space left on device")
        self.open_now[allocation] = self.kept[allocation] = tuple(limits)
        return self.root / "alloc" / allocation

    def turns(self, allocation: AllocationID) -> Path | None:
        return self.root / "turns" / allocation if self.takes_turns else None

    def link_driver(self, allocation: AllocationID, driver: Path) -> Path:
        self.drivers[allocation] = driver.name
        return self.root / "alloc" / allocation / "driver"

    async def close(self, allocation: AllocationID) -> None:
        self.open_now.pop(allocation, None)
        self.kept.pop(allocation, None)

    def allocations(self) -> tuple[AllocationID, ...]:
        return tuple(self.kept)

    def limits(self, allocation: AllocationID) -> tuple[Limit, ...]:
        return self.kept.get(allocation, ())

    def usage(self, allocation: AllocationID) -> AllocationUsage:
        raise GpuManagerError(f"nobody measures {allocation}")


@dataclass
class SimulatedBackEnds:
    """`BackEnds` of a store. enforced: by name. broken: names that cannot be changed."""

    enforced: dict[str, Grant] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    async def update(self, grant: Grant) -> None:
        if grant.id in self.broken:
            raise OSError("no room")
        self.enforced[grant.id] = grant

    async def release(self, name: AllocationID) -> None:
        if name in self.broken:
            raise OSError("busy")
        self.enforced.pop(name, None)


@dataclass
class SimulatedPods:
    """A `PodsSource`: the kubelet's list of pods."""

    listed: dict[PodUID, PodView] = field(default_factory=dict)
    readable: bool = True

    async def pods(self) -> tuple[PodView, ...]:
        if not self.readable:
            raise PodsUnavailable("http://kubelet", "connection refused")
        return tuple(self.listed.values())


@dataclass
class SimulatedContainers:
    """`LiveContainers`: what a container runtime lists, if it answers."""

    containers: list[LiveContainer] = field(default_factory=list)
    answers: bool = True

    async def list(self) -> tuple[LiveContainer, ...]:
        if not self.answers:
            raise GpuManagerError("/run/containerd.sock: no such file")
        return tuple(self.containers)


class SimulatedFreezer:
    """A `limits.pausing.Freezer`. containers: of each pid, its allocation and the name of its
    cgroup. broken: cgroups that stay as they are, whatever is written. lookups: of processes, so
    far."""

    def __init__(self, containers: dict[int, tuple[AllocationID, Cgroup]] | None = None) -> None:
        self.containers = containers or {}
        self.frozen: set[Cgroup] = set()
        self.terminating: set[Cgroup] = set()
        self.broken: set[Cgroup] = set()
        self.lookups = 0

    def container(self, allocation: AllocationID, process: Process) -> Cgroup | None:
        self.lookups += 1
        owner, cgroup = self.containers.get(process.pid, (None, None))
        return cgroup if owner == allocation else None

    def terminates(self, cgroup: Cgroup) -> bool:
        return cgroup in self.terminating

    def freeze(self, cgroup: Cgroup) -> None:
        self._check(cgroup)
        if cgroup not in self.broken:
            self.frozen.add(cgroup)

    def thaw(self, cgroup: Cgroup) -> None:
        self._check(cgroup)
        self.frozen.discard(cgroup)

    def is_frozen(self, cgroup: Cgroup) -> bool:
        return cgroup in self.frozen

    def end(self, cgroup: Cgroup) -> None:
        """End a container: its cgroup is removed."""
        self.frozen.discard(cgroup)
        self.containers = {pid: one for pid, one in self.containers.items() if one[1] != cgroup}

    def _check(self, cgroup: Cgroup) -> None:
        if all(one[1] != cgroup for one in self.containers.values()):
            raise FileNotFoundError(cgroup)


@dataclass
class ManualClock:
    """Seconds that pass only as somebody sets them. step: that each look at it adds."""

    now: float = 0.0
    step: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class ManualTimer:
    """Moves only when it is told to, for what waits inside of this process."""

    def __init__(self) -> None:
        self._now = 1000 * NS
        self._sleepers: set[tuple[int, asyncio.Future[None]]] = set()

    def now(self) -> int:
        return self._now

    async def sleep_until(self, deadline: int) -> None:
        if deadline > self._now:
            sleeper = (deadline, asyncio.get_running_loop().create_future())
            self._sleepers.add(sleeper)
            try:
                await sleeper[1]
            finally:
                self._sleepers.discard(sleeper)

    def advance(self, seconds: float) -> None:
        """Wake who sleeps no longer; they run when the caller awaits something."""
        self._now += round(seconds * NS)
        for deadline, waking in self._sleepers:
            if deadline <= self._now and not waking.done():
                waking.set_result(None)
