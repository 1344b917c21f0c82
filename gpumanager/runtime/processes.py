"""From a process of the host to its container, by its cgroup.

A process stays in its container for life (the kubelet and the runtimes move none), and a pid with
its start time means one process, so that an answer is kept. A process that sends HELLO is looked up
once for each copy of the shim in it.
"""

from functools import lru_cache
from typing import Final

from gpumanager.gpu.nvml_service import ANSWER_SECONDS, NvmlReader, NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import PodUID
from gpumanager.limits.processes import Process, find
from gpumanager.runtime.cgroup import CgroupFiles, Membership, identify, read_places

REMEMBERED_PROCESSES: Final = 4096


class Containers:
    """Processes of this node and what they are of. Not for several threads."""

    def __init__(self, files: CgroupFiles, proc: str = "/proc") -> None:
        self._files = files
        self._proc = proc
        self._remembered = lru_cache(REMEMBERED_PROCESSES)(self._identify)

    def _identify(self, process: Process) -> Membership | None:
        return identify(read_places(process.pid, self._proc), self._files.around)

    def of(self, process: Process) -> Membership | None:
        """Return its pod; None where its cgroup names none. process: just found, still alive."""
        return self._remembered(process)

    def of_pid(self, pid: int) -> Membership | None:
        """Return the same for the process that has this pid now; None where none has."""
        process = find(pid)
        return None if process is None else self.of(process)

    def beside(self, process: Process) -> tuple[int, ...]:
        """Return the pids of its container, ascending; empty where its cgroup names none."""
        found = self.of(process)
        return self._files.processes(found) if found and found.container_id else ()


EVERY_PROCESS: Final = NvmlQuery(processes=None)


class GpuTenants:
    """Of all GPUs. seconds: for NVML to answer."""

    def __init__(
        self, nvml: NvmlService, containers: Containers, seconds: float = ANSWER_SECONDS
    ) -> None:
        self._nvml = NvmlReader(nvml, "cannot match GPU processes to pods", seconds)
        self._containers = containers

    async def pods(self) -> dict[GpuUUID, frozenset[PodUID]] | None:
        """Return the pods with a process on each GPU; None where the driver does not tell of all
        GPUs.

        Processes of no pod, and those of a pod that cannot be found, are left out.
        """
        reading = await self._nvml.read(EVERY_PROCESS)
        if reading is None or not reading.complete:
            return None
        found = {gpu: map(self._containers.of_pid, pids) for gpu, pids in reading.held.items()}
        return {
            gpu: frozenset(one.pod_uid for one in members if one is not None)
            for gpu, members in found.items()
        }
