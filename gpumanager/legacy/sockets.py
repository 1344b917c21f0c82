"""What programs of gpu-manager meet here: gpu-client at the sockets of our allocations, and the
sockets of pods that began under gpu-manager. Without this package a node serves our own shim."""

from collections.abc import Callable, Collection
from pathlib import Path

from gpumanager.grants.grant import State
from gpumanager.grants.journal import Journal
from gpumanager.ids import AllocationID
from gpumanager.isolation.table import limits
from gpumanager.legacy.files import driver_numbers
from gpumanager.legacy.gateway import CALL_SECONDS, Gateway
from gpumanager.legacy.gpu_client import ContainerMember, ForGpuClients, GpuClients, nobody
from gpumanager.legacy.pods import ContainerNames, LegacyContainer, LegacyContainers, LegacyPods
from gpumanager.limits.socket.peers import Neighbours, PeerCheck
from gpumanager.limits.values import Limit


class LegacySockets:
    """One for all allocations below `root`.

    peers: knows whose processes call, neighbours: which are of one container; None: not known.
    resident: the container that an allocation is for, names: those of containers by their IDs,
    driver: the driver's version. call_seconds: for gpu-client to register.
    """

    def __init__(
        self,
        root: Path,
        *,
        peers: PeerCheck | None = None,
        resident: Callable[[AllocationID], ContainerMember | None] = nobody,
        neighbours: Neighbours | None = None,
        names: ContainerNames | None = None,
        driver: str = "",
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._peers = peers
        self._gateway = Gateway(root, call_seconds)
        self._clients = ForGpuClients(self._gateway, resident, neighbours, driver_numbers(driver))
        self._pods = LegacyPods(root, self._clients, peers, names)

    def at_socket(
        self, directory: Path, allocation: AllocationID, limits: Callable[[], tuple[Limit, ...]]
    ) -> GpuClients:
        """Return what answers gpu-client at the socket of one of our allocations."""
        return GpuClients(
            self._clients, directory, allocation, lambda _: limits(), peers=self._peers
        )

    @property
    def registered(self) -> bool:
        """Return whether a container has registered and lives."""
        return bool(self._clients.registered)

    def candidates(self) -> frozenset[str]:
        """Return the UIDs of pods that may have begun under gpu-manager, and other names."""
        return self._pods.candidates()

    def serve(self, containers: LegacyContainers) -> None:
        """Serve the pods among them that began under gpu-manager; to be repeated each second."""
        self._pods.serve(containers)

    async def stop(self) -> None:
        """Stop serving. Directories stay."""
        self._pods.stop()
        await self._gateway.stop()


def legacy_containers(journal: Journal, uids: Collection[str]) -> LegacyContainers:
    """Return the confirmed grants of these pods."""
    found: dict[str, tuple[LegacyContainer, ...]] = {}
    for grant in journal.live():
        pod = grant.pod
        if pod and pod.uid in uids and grant.state is State.CONFIRMED:
            own = () if grant.exclusive else limits(grant)
            container = LegacyContainer(grant.id, pod.uid, pod.container, own)
            found[pod.uid] = (*found.get(pod.uid, ()), container)
    return found
