"""What programs of gpu-manager meet here: gpu-client at the sockets of our allocations, and the
sockets of pods that began under gpu-manager. Without this package a node serves our own shim.

Each of those pods has a directory of its own, with one socket for all its containers:

    <root>/<pod UID>/vcuda.sock                              mounted at /etc/vcuda
    <root>/<pod UID>/<container ID>/vcuda.config, pids.config

They go on with vcuda-controller, and every program that they start calls gpu-client, which waits
for this socket for ever. Here it is answered, so that they need not be drained.
"""

import errno
import logging
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import Claimant, State
from gpumanager.grants.journal import Journal
from gpumanager.ids import AllocationID
from gpumanager.isolation.table import limits
from gpumanager.legacy.files import VDevice, driver_numbers
from gpumanager.legacy.gateway import CALL_SECONDS, Gateway
from gpumanager.legacy.gpu_client import ForGpuClients, GpuClients
from gpumanager.limits.socket.listener import SocketListener
from gpumanager.limits.socket.peers import Neighbours, PeerCheck
from gpumanager.limits.socket.protocol import Greeting, HelloRefused, Http2, refusal
from gpumanager.limits.values import Limit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LegacyContainer:
    """A container of such a pod. limits: none for whole GPUs."""

    allocation: AllocationID
    pod: Claimant
    limits: tuple[Limit, ...]


LegacyContainers = Mapping[str, tuple[LegacyContainer, ...]]
"""By their pods' UIDs; one at least for each."""


ContainerNames = Callable[[str], Awaitable[str | None]]
"""Finds a container by its ID; None for one that does not run. Raises GpuManagerError where not
known."""


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
        resident: Callable[[AllocationID], Claimant | None] = lambda _: None,
        neighbours: Neighbours | None = None,
        names: ContainerNames | None = None,
        driver: str = "",
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._root = root
        self._resident = resident
        self._gateway = Gateway(root, call_seconds)
        self._means = ForGpuClients(self._gateway, peers, neighbours, driver_numbers(driver))
        self._names = names
        self._doors: dict[str, _Door] = {}

    def at_socket(
        self, directory: Path, allocation: AllocationID, limits: Callable[[], tuple[Limit, ...]]
    ) -> GpuClients:
        """Return what answers gpu-client at the socket of one of our allocations."""

        async def about(_: VDevice) -> Claimant | None:
            return self._resident(allocation)

        return GpuClients(self._means, directory, allocation, lambda _: limits(), about)

    @property
    def registered(self) -> bool:
        """Return whether a container has registered and lives."""
        return bool(self._means.registered)

    def candidates(self) -> frozenset[str]:
        """Return the UIDs of pods that may have begun under gpu-manager, and other names: each that
        has a directory or is served already."""
        return frozenset((*self._present(), *self._doors))

    def serve(self, containers: LegacyContainers) -> None:
        """Serve these, which live now: add what is new, remove what has ended, update the rest. To
        be repeated each second."""
        for uid in set(self._doors) - set(containers):
            self._doors.pop(uid).close()
            try:
                shutil.rmtree(self._root / uid)
            except OSError as error:
                log.warning("cannot remove %s: %s", self._root / uid, error.strerror)
        for uid in self._present():
            if uid not in containers or uid in self._doors:
                continue
            try:
                self._doors[uid] = _Door(
                    self._root / uid, containers[uid], self._means, self._names
                )
                log.info("serving pod %s with the limits that gpu-manager gave it", uid)
            except (OSError, GpuManagerError) as error:
                log.warning("cannot serve gpu-manager's pod %s: %s", uid, error)
        for uid, door in self._doors.items():
            door.keep(containers[uid])

    async def stop(self) -> None:
        """Stop serving. Directories stay."""
        for door in self._doors.values():
            door.close()
        self._doors.clear()
        await self._gateway.stop()

    def _present(self) -> list[str]:
        with suppress(OSError), os.scandir(self._root) as entries:
            found = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
            return [name for name in found if name != "alloc"]  # those of limits/manager.py
        return []


class _Door:
    """One pod's socket. Raises OSError and SocketPathTooLong, and then holds nothing."""

    def __init__(
        self,
        directory: Path,
        containers: tuple[LegacyContainer, ...],
        means: ForGpuClients,
        names: ContainerNames | None,
    ) -> None:
        self._containers = containers
        self._limits = {one.pod.container: one.limits for one in reversed(containers)}
        self._names = names
        self._clients = GpuClients(
            means, directory, containers[0].allocation, self._limits.get, self._about
        )
        self._listener = SocketListener(directory, self._answer)

    def keep(self, containers: tuple[LegacyContainer, ...]) -> None:
        if containers != self._containers:
            self._containers = containers
            self._limits.clear()
            self._limits |= {one.pod.container: one.limits for one in reversed(containers)}
            self._clients.limits_changed()
        self._clients.refresh()

    def close(self) -> None:
        self._listener.close()

    async def _answer(self, connection: socket.socket, greeting: Greeting) -> None:
        if isinstance(greeting, Http2):
            await self._clients.answer(connection, greeting.begun)
        else:
            refused = HelloRefused(errno.EPROTO, "this socket is for gpu-client alone")
            connection.send(refusal(refused), socket.MSG_DONTWAIT)

    async def _about(self, device: VDevice) -> Claimant | HelloRefused:
        """Find which of the pod's containers this is."""
        name = device.container_name
        if not name and len(self._containers) > 1:
            try:
                known = await self._names(device.container_id) if self._names else None
            except GpuManagerError as error:
                return HelloRefused(errno.EAGAIN, str(error))
            if known is None:
                return HelloRefused(
                    errno.EAGAIN, f"the container runtime knows no container {device.container_id}"
                )
            name = known
        found = [one.pod for one in self._containers if name in ("", one.pod.container)]
        return found[0] if found else HelloRefused(errno.EINVAL, f"no GPU was given to {name!r}")


def legacy_containers(journal: Journal, uids: Collection[str]) -> LegacyContainers:
    """Return the confirmed grants of these pods."""
    found: dict[str, tuple[LegacyContainer, ...]] = {}
    for grant in journal.live() if uids else ():
        pod = grant.pod
        if pod and pod.uid in uids and grant.state is State.CONFIRMED:
            own = () if grant.exclusive else limits(grant)
            container = LegacyContainer(grant.id, pod, own)
            found[pod.uid] = (*found.get(pod.uid, ()), container)
    return found
