"""A freezer of containers that are only written down. Implements `limits.pausing.Freezer`."""

from gpumanager.ids import AllocationID
from gpumanager.limits.pausing import Cgroup
from gpumanager.limits.processes import Process


class SimulatedFreezer:
    """containers: of each pid, its allocation and the name of its cgroup. broken: cgroups that stay
    as they are, whatever is written. lookups: of processes, so far."""

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
