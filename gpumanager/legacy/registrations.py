"""The containers of one allocation in which vcuda-controller runs, and what it reads there.

    <allocation>/<container ID>/vcuda.config, pids.config
    <allocation>/<container name>/…, <allocation>/…             for a gpu-client that tells no ID

Each container gets its files when its gpu-client registers, and keeps them current from then on:
limits when they change, pids for as long as a process of it lives. The files are all there is to
remember, so that the next manager goes on with them.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from weakref import WeakSet

from gpumanager.legacy.files import (
    PIDS_CONFIG,
    VCUDA_CONFIG,
    NotOriginal,
    decode_config,
    decode_pids,
    encode_config,
    encode_pids,
    names_directory,
    original_config,
)
from gpumanager.limits.processes import Process, alive, find, parent_of
from gpumanager.limits.socket.peers import Neighbours
from gpumanager.limits.values import Limit

log = logging.getLogger(__name__)

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


LimitsOf = Callable[[str], Sequence[Limit] | None]
"""What a container may use now, by its name: nothing for whole GPUs, None where not known."""


class TooManyRegistrations(Exception):
    """No more containers can register."""


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

    def add(self, names: Iterable[str], pod_uid: str, container: str, caller: Process) -> None:
        """Write the files of a container in each of these directories; safe to repeat.

        caller: of that container, a child of the program that needs them. Raises TooMany, OSError.
        """
        for name in names:
            known = self._clients.get(name)
            if known is None and len(self._clients) >= MOST_REGISTRATIONS:
                raise TooManyRegistrations
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
