"""gpu-client at an allocation's socket: what vcuda-controller runs before it limits a program.

It names a pod and a container, which the original believes. Here the kernel names them, as for
HELLO, and what is named must fit. Then the container's files are written, which vcuda-controller
reads, and they are kept current from then on: limits when they change, pids for as long as a
process of it lives. The files are all there is to remember, so that the next manager goes on with
them.

    <allocation>/<container ID>/vcuda.config, pids.config
    <allocation>/<container name>/…, <allocation>/…             for a gpu-client that tells no ID
"""

import asyncio
import errno
import logging
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from weakref import WeakSet

from gpumanager.grants.grant import Claimant
from gpumanager.ids import AllocationID
from gpumanager.legacy.files import (
    PIDS_CONFIG,
    VCUDA_CONFIG,
    NotOriginal,
    VDevice,
    decode_config,
    decode_pids,
    encode_config,
    encode_pids,
    names_directory,
    original_config,
)
from gpumanager.legacy.gateway import Gateway
from gpumanager.limits.processes import Process, alive, find, parent_of
from gpumanager.limits.socket.peers import Neighbours, PeerCheck, peer_pid, refuse_other_pod
from gpumanager.limits.socket.protocol import HelloRefused, refused_by_system
from gpumanager.limits.values import Limit

log = logging.getLogger(__name__)


LimitsOf = Callable[[str], Sequence[Limit] | None]
"""What a container may use now, by its name: nothing for whole GPUs, None where not known."""


@dataclass(frozen=True, slots=True)
class ForGpuClients:
    """What a manager has for all of them. resident: the container that an allocation is for.
    driver: its major and minor version. registered: of the sockets at which a container has
    registered and lives."""

    gateway: Gateway
    resident: Callable[[AllocationID], Claimant | None]
    neighbours: Neighbours | None
    driver: tuple[int, int]
    registered: "WeakSet[Registrations]" = field(default_factory=WeakSet)


About = Callable[[VDevice], Awaitable[Claimant | HelloRefused | None]]
"""Which container gpu-client means; None where nothing is known that it must fit."""


CALLS: Final = 8
"""At once at one socket, and the others wait: each takes five descriptors."""


class GpuClients:
    """Those at one socket. allocation: which one it serves. limits: what a container has now."""

    def __init__(
        self,
        around: ForGpuClients,
        directory: Path,
        allocation: AllocationID,
        limits: LimitsOf,
        *,
        peers: PeerCheck | None,
        about: About | None = None,
    ) -> None:
        self._around = around
        self._allocation = allocation
        self._peers = peers
        self._about = about
        self._calls = asyncio.Semaphore(CALLS)
        self._registrations = Registrations(
            directory,
            limits,
            neighbours=around.neighbours,
            driver=around.driver,
            registered=around.registered,
        )

    async def answer(self, connection: socket.socket, begun: bytes) -> None:
        """Answer a connection that speaks HTTP/2, to its end."""
        process = find(peer_pid(connection))
        async with self._calls:
            await self._around.gateway.carry(
                connection, begun, lambda device: self.register(process, device)
            )

    async def register(self, process: Process | None, device: VDevice) -> HelloRefused | None:
        """Give the caller's container its files. process: the caller; None: not known."""
        if process is None or not alive(process):
            return HelloRefused(errno.ESRCH, "the manager does not see who calls: it needs hostPID")
        if reason := refuse_other_pod(self._peers, self._allocation, process):
            return reason
        resident: Claimant | HelloRefused | None
        if self._about is None:
            resident = self._around.resident(self._allocation)
        else:
            resident = await self._about(device)
        if isinstance(resident, HelloRefused):
            return resident
        return self._add(device, resident, process)

    def _add(
        self, device: VDevice, resident: Claimant | None, process: Process
    ) -> HelloRefused | None:
        names = directories(device.container_id, device.container_name)
        if not names:
            given = device.container_id or device.container_name
            return HelloRefused(
                errno.EINVAL, f"{given!r} names no container: give its ID or its name"
            )
        if resident and device.pod_uid and device.pod_uid.replace("_", "-") != resident.uid:
            return HelloRefused(
                errno.EACCES, f"this socket is pod {resident.uid}'s, not {device.pod_uid}'s"
            )
        pod_uid = device.pod_uid or (resident.uid if resident else "")
        container = device.container_name or (resident.container if resident else "")
        try:
            if self._registrations.add(names, pod_uid, container, process):
                return None
        except OSError as error:
            return refused_by_system("writing the files of vcuda-controller", error)
        return HelloRefused(
            errno.ENOSPC, f"{MOST_REGISTRATIONS} containers have registered here already"
        )

    def limits_changed(self) -> None:
        self._registrations.limits_changed()

    def refresh(self) -> None:
        self._registrations.refresh()


MOST_REGISTRATIONS: Final = 16
"""Registered containers of one allocation at a time; those that have ended do not count."""

ROOT: Final = ""
"""In place of a directory: the allocation's own, for programs that read /etc/vcuda/vcuda.config."""


@dataclass(frozen=True, slots=True)
class _Client:
    """A directory with the two files. processes: known to be of its container."""

    directory: str
    pod_uid: str
    container: str
    processes: frozenset[Process]


class Registrations:
    """Of one socket. driver: its major and minor version. registered: those with a container."""

    def __init__(
        self,
        directory: Path,
        limits: LimitsOf,
        *,
        neighbours: Neighbours | None = None,
        driver: tuple[int, int] = (0, 0),
        registered: "WeakSet[Registrations] | None" = None,
    ) -> None:
        self._registered = WeakSet[Registrations]() if registered is None else registered
        self._directory = directory
        self._limits = limits
        self._neighbours = neighbours
        self._driver = driver
        self._clients: dict[str, _Client] = {}
        # Those of a manager before us, as far as a process of them lives.
        with suppress(OSError), os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            for name in (ROOT, *names):
                with suppress(OSError, NotOriginal):
                    config = decode_config((directory / name / VCUDA_CONFIG).read_bytes())
                    pids = decode_pids((directory / name / PIDS_CONFIG).read_bytes())
                    processes = frozenset(found for found in map(find, pids) if found is not None)
                    self._clients[name] = _Client(name, config.pod_uid, config.container, processes)
        for client in self._clients.values():
            self._registered.add(self)
            with self._logging_errors(client):
                self._write_both(client)

    def add(self, names: Iterable[str], pod_uid: str, container: str, caller: Process) -> bool:
        """Write the files of a container in each of these directories; safe to repeat. Return False
        where there is no room for another container.

        caller: of that container, a child of the program that needs them. Raises OSError.
        """
        for name in names:
            known = self._clients.get(name)
            if known is None and len(self._clients) >= MOST_REGISTRATIONS:
                return False
            earlier = known.processes if known else frozenset[Process]()
            started = self._around(caller)
            if not started:
                # gpu-client ends at once; the program that started it is the one that counts.
                parent = find(parent_of(caller))
                started = frozenset({caller, parent} if parent else {caller})
            client = _Client(name, pod_uid, container, frozenset({*_living(earlier), *started}))
            self._write_both(client)
            self._clients[name] = client
            self._registered.add(self)
        return True

    def limits_changed(self) -> None:
        for client in self._clients.values():
            with self._logging_errors(client):
                self._write_config(client)

    def refresh(self) -> None:
        """Write the processes that live now, and remove the files of containers without any."""
        for name, client in list(self._clients.items()):
            living = _living(client.processes)
            if not living:
                del self._clients[name]
                with self._logging_errors(client):
                    if name != ROOT:
                        shutil.rmtree(self._directory / name)
                    else:
                        for file in (VCUDA_CONFIG, PIDS_CONFIG):
                            (self._directory / file).unlink(missing_ok=True)
                continue
            now = replace(client, processes=self._around(next(iter(living))) or living)
            if now != client:
                self._clients[name] = now
                with self._logging_errors(now):
                    self._write_pids(now)
        if not self._clients:
            self._registered.discard(self)

    def _around(self, process: Process) -> frozenset[Process]:
        """Return all of its container; empty where that is not known."""
        pids = self._neighbours.beside(process) if self._neighbours else ()
        return frozenset(found for found in map(find, pids) if found is not None)

    def _write_both(self, client: _Client) -> None:
        self._write_pids(client)
        self._write_config(client)

    def _write_config(self, client: _Client) -> None:
        limits = self._limits(client.container)
        if limits is not None:
            config = original_config(client.pod_uid, client.container, limits, self._driver)
            self._write(client, VCUDA_CONFIG, encode_config(config))

    def _write_pids(self, client: _Client) -> None:
        pids = (process.pid for process in client.processes)
        self._write(client, PIDS_CONFIG, encode_pids(pids))

    def _write(self, client: _Client, name: str, content: bytes) -> None:
        """Write a file by a rename, so that it appears complete: the original takes no lock."""
        directory = self._directory / client.directory
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
        temporary = directory / f".{name}.new"
        temporary.write_bytes(content)
        temporary.chmod(0o644)
        temporary.replace(directory / name)

    @contextmanager
    def _logging_errors(self, client: _Client) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("%s/%s: %s", self._directory, client.directory, error.strerror)


def directories(container_id: str, container_name: str) -> tuple[str, ...]:
    """Return where a gpu-client's program looks; empty where that names no directory.

    With an ID that alone counts, as for the original.
    """
    if container_id:
        return (container_id,) if names_directory(container_id) else ()
    named = (container_name,) if names_directory(container_name) else ()
    return (*named, ROOT) if container_name else ()


def _living(processes: frozenset[Process]) -> frozenset[Process]:
    return frozenset(process for process in processes if alive(process))
