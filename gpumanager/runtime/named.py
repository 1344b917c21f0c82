"""Names for containers that are known by their cgroup: asked of the runtime once for each."""

from typing import Final, Protocol

from gpumanager.ids import ContainerID
from gpumanager.runtime.processes import Containers
from gpumanager.runtime.values import Container, LiveContainer

REMEMBERED_CONTAINERS: Final = 1024


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
        """None for a process of no container that runs; raises RuntimeUnavailable."""
        found = self._containers.of_pid(pid)
        if found is None or found.container_id is None:
            return None
        return await self.named(found.container_id)

    async def name_of(self, container_id: str) -> str | None:
        """Its name in its pod; None for one that does not run, and raises RuntimeUnavailable."""
        found = await self.named(ContainerID(container_id))
        return None if found is None else found.name

    async def named(self, container_id: ContainerID) -> Container | None:
        """A container's names never change, so that the first answer is kept."""
        if container_id not in self._known:
            live = await self._statuses.status(container_id)
            if live is None:
                return None
            while len(self._known) >= REMEMBERED_CONTAINERS:
                del self._known[next(iter(self._known))]
            self._known[container_id] = live.container
        return self._known[container_id]
