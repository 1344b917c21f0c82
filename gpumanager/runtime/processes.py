"""From a process of the host to its container, by its cgroup, and to its name, by the runtime.

A process stays in its container for life (the kubelet and the runtimes move none), and a pid with
its start time means one process, so that an answer is kept. A process that sends HELLO is looked up
once for each copy of the shim in it. The runtime is called once for each container.
"""

from typing import Final, Protocol

from gpumanager.gpu.nvml_service import ANSWER_SECONDS, NvmlReader, NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import ContainerID, PodUID
from gpumanager.limits.processes import Process, find
from gpumanager.runtime.cgroup import CgroupFiles, Membership, identify, read_places
from gpumanager.runtime.status import Container, LiveContainer

REMEMBERED_PROCESSES: Final = 4096
REMEMBERED_CONTAINERS: Final = 1024


class Containers:
    """Processes of this node and what they are of. Not for several threads."""

    def __init__(self, files: CgroupFiles, proc: str = "/proc") -> None:
        self._files = files
        self._proc = proc
        self._known: dict[Process, Membership | None] = {}

    def of(self, process: Process) -> Membership | None:
        """Return its pod; None where its cgroup names none. process: just found, still alive."""
        if process in self._known:
            return self._known[process]
        found = identify(read_places(process.pid, self._proc), self._files.around)
        while len(self._known) >= REMEMBERED_PROCESSES:
            del self._known[next(iter(self._known))]
        self._known[process] = found
        return found

    def of_pid(self, pid: int) -> Membership | None:
        """Return the same for the process that has this pid now; None where none has."""
        process = find(pid)
        return None if process is None else self.of(process)

    def beside(self, process: Process) -> tuple[int, ...]:
        """Return the pids of its container, ascending; empty where its cgroup names none."""
        found = self.of(process)
        return self._files.processes(found) if found and found.container_id else ()


class ContainerStatuses(Protocol):
    """Finds a container by its ID."""

    async def status(self, container_id: ContainerID) -> LiveContainer | None: ...


class NamedContainers:
    """From a pid of the host to the pod's and the container's name."""

    def __init__(self, containers: Containers, statuses: ContainerStatuses) -> None:
        self._containers = containers
        self._statuses = statuses
        self._known: dict[ContainerID, Container] = {}

    async def of_pid(self, pid: int) -> Container | None:
        """Return its container; None for a process of none that runs. Raises RuntimeUnavailable."""
        found = self._containers.of_pid(pid)
        if found is None or found.container_id is None:
            return None
        return await self.named(found.container_id)

    async def name_of(self, container_id: str) -> str | None:
        """Return its name in its pod; None for one that does not run. Raises RuntimeUnavailable."""
        found = await self.named(ContainerID(container_id))
        return None if found is None else found.name

    async def named(self, container_id: ContainerID) -> Container | None:
        """Return it by its ID. The names never change, so that the first answer is kept."""
        if container_id not in self._known:
            live = await self._statuses.status(container_id)
            if live is None:
                return None
            while len(self._known) >= REMEMBERED_CONTAINERS:
                del self._known[next(iter(self._known))]
            self._known[container_id] = live.container
        return self._known[container_id]


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
