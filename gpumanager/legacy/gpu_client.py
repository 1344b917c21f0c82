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

About = Callable[[VDevice], Awaitable[Claimant | HelloRefused | None]]
"""Which container gpu-client means; None where nothing is known that it must fit."""

CALLS: Final = 8
"""At once at one socket, and the others wait: each takes five descriptors."""

MOST_REGISTRATIONS: Final = 16
"""Registered containers of one allocation at a time; those that have ended do not count."""

ROOT: Final = ""
"""In place of a directory: the allocation's own, for programs that read /etc/vcuda/vcuda.config."""


@dataclass(frozen=True, slots=True)
class ForGpuClients:
    """What a manager has for all of them. peers: knows whose processes call, neighbours: which are
    of one container; None: not known. driver: its major and minor version. registered: of the
    sockets at which a container has registered and lives."""

    gateway: Gateway
    peers: PeerCheck | None
    neighbours: Neighbours | None
    driver: tuple[int, int]
    registered: "WeakSet[GpuClients]" = field(default_factory=WeakSet)


@dataclass(frozen=True, slots=True)
class _Client:
    """A container with the two files. processes: known to be of it."""

    pod_uid: str
    container: str
    processes: frozenset[Process]


class GpuClients:
    """Those at one socket. allocation: which one it serves. limits: what a container has now."""

    def __init__(
        self,
        means: ForGpuClients,
        directory: Path,
        allocation: AllocationID,
        limits: LimitsOf,
        about: About,
    ) -> None:
        self._means = means
        self._directory = directory
        self._allocation = allocation
        self._limits = limits
        self._about = about
        self._calls = asyncio.Semaphore(CALLS)
        self._clients: dict[str, _Client] = {}
        """By the names of their directories."""
        # Those of a manager before us, as far as a process of them lives.
        with suppress(OSError), os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            for name in (ROOT, *names):
                with suppress(OSError, NotOriginal):
                    config = decode_config((directory / name / VCUDA_CONFIG).read_bytes())
                    pids = decode_pids((directory / name / PIDS_CONFIG).read_bytes())
                    self._clients[name] = _Client(config.pod_uid, config.container, _found(pids))
        for name, client in self._clients.items():
            means.registered.add(self)
            with self._logging_errors(name):
                self._write_pids(name, client)
                self._write_config(name, client)

    async def answer(self, connection: socket.socket, begun: bytes) -> None:
        """Answer a connection that speaks HTTP/2, to its end."""
        process = find(peer_pid(connection))
        async with self._calls:
            await self._means.gateway.carry(
                connection, begun, lambda device: self._register(process, device)
            )

    async def _register(self, process: Process | None, device: VDevice) -> HelloRefused | None:
        """Give the caller's container its files. process: the caller; None: not known."""
        if process is None or not alive(process):
            return HelloRefused(errno.ESRCH, "the manager does not see who calls: it needs hostPID")
        stranger = refuse_other_pod(self._means.peers, self._allocation, process)
        resident = stranger or await self._about(device)
        if isinstance(resident, HelloRefused):
            return resident
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
            return self._add(names, pod_uid, container, process)
        except OSError as error:
            return refused_by_system("writing the files of vcuda-controller", error)

    def _add(
        self, names: Iterable[str], pod_uid: str, container: str, caller: Process
    ) -> HelloRefused | None:
        """Write the files of a container in each of these directories; safe to repeat.

        caller: of that container, a child of the program that needs them. Raises OSError.
        """
        for name in names:
            known = self._clients.get(name)
            if known is None and len(self._clients) >= MOST_REGISTRATIONS:
                return HelloRefused(
                    errno.ENOSPC, f"{MOST_REGISTRATIONS} containers have registered here already"
                )
            # gpu-client ends at once; the program that started it is the one that counts.
            started = self._beside(caller) or {caller, *_found([parent_of(caller)])}
            earlier = {one for one in known.processes if alive(one)} if known else set()
            client = _Client(pod_uid, container, frozenset({*earlier, *started}))
            self._write_pids(name, client)
            self._write_config(name, client)
            self._clients[name] = client
            self._means.registered.add(self)
        return None

    def limits_changed(self) -> None:
        for name, client in self._clients.items():
            with self._logging_errors(name):
                self._write_config(name, client)

    def refresh(self) -> None:
        """Write the processes that live now, and remove the files of containers without any."""
        for name, client in list(self._clients.items()):
            living = frozenset(one for one in client.processes if alive(one))
            if not living:
                del self._clients[name]
                with self._logging_errors(name):
                    if name != ROOT:
                        shutil.rmtree(self._directory / name)
                    else:
                        for file in (VCUDA_CONFIG, PIDS_CONFIG):
                            (self._directory / file).unlink(missing_ok=True)
                continue
            now = replace(client, processes=self._beside(next(iter(living))) or living)
            if now != client:
                self._clients[name] = now
                with self._logging_errors(name):
                    self._write_pids(name, now)
        if not self._clients:
            self._means.registered.discard(self)

    def _beside(self, process: Process) -> frozenset[Process]:
        """Return all of its container; empty where that is not known."""
        neighbours = self._means.neighbours
        return _found(neighbours.beside(process)) if neighbours else frozenset()

    def _write_config(self, name: str, client: _Client) -> None:
        limits = self._limits(client.container)
        if limits is not None:
            driver = self._means.driver
            config = original_config(client.pod_uid, client.container, limits, driver)
            self._write(name, VCUDA_CONFIG, encode_config(config))

    def _write_pids(self, name: str, client: _Client) -> None:
        self._write(name, PIDS_CONFIG, encode_pids(process.pid for process in client.processes))

    def _write(self, name: str, file: str, content: bytes) -> None:
        """Write a file by a rename, so that it appears complete: the original takes no lock."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
        temporary = directory / f".{file}.new"
        temporary.write_bytes(content)
        temporary.chmod(0o644)
        temporary.replace(directory / file)

    @contextmanager
    def _logging_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("%s/%s: %s", self._directory, name, error.strerror)


def directories(container_id: str, container_name: str) -> tuple[str, ...]:
    """Return where a gpu-client's program looks; empty where that names no directory.

    With an ID that alone counts, as for the original.
    """
    if container_id:
        return (container_id,) if names_directory(container_id) else ()
    named = (container_name,) if names_directory(container_name) else ()
    return (*named, ROOT) if container_name else ()


def _found(pids: Iterable[int]) -> frozenset[Process]:
    return frozenset(found for found in map(find, pids) if found is not None)
