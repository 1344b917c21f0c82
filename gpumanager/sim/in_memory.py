"""The agent's seams in memory: each remembers what it is told, and answers what a test sets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.pod import PodView
from gpumanager.kubelet.pods import PodsUnavailable
from gpumanager.limits.values import AllocationUsage, Limit
from gpumanager.runtime.status import LiveContainer


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
