"""From a process of the host to its container, by its cgroup alone: no call to anybody.

What a process is of stays so for its life (the kubelet and the runtimes move nobody), and a pid
with its start time means one process, so that an answer is kept. A process that says HELLO is asked
about once for each copy of the shim in it.
"""

from typing import Final

from gpumanager.limits.processes import Process, find
from gpumanager.runtime.cgroup import Membership, identify
from gpumanager.runtime.cgroup_files import CgroupFiles, read_places

REMEMBERED_PROCESSES: Final = 4096


class Containers:
    """Processes of this node and what they are of. Not for several threads."""

    def __init__(self, files: CgroupFiles, proc: str = "/proc") -> None:
        self._files = files
        self._proc = proc
        self._known: dict[Process, Membership | None] = {}

    def of(self, process: Process) -> Membership | None:
        """None where its cgroup names no pod. process: as just found, for its pid is looked up."""
        if process in self._known:
            return self._known[process]
        found = identify(read_places(process.pid, self._proc), self._files.around)
        while len(self._known) >= REMEMBERED_PROCESSES:
            del self._known[next(iter(self._known))]
        self._known[process] = found
        return found

    def of_pid(self, pid: int) -> Membership | None:
        """The same, of whichever process has this pid now; None where none has."""
        process = find(pid)
        return None if process is None else self.of(process)

    def beside(self, process: Process) -> tuple[int, ...]:
        """Return the pids of its container, ascending; empty where its cgroup names none."""
        found = self.of(process)
        return self._files.processes(found) if found and found.container_id else ()
