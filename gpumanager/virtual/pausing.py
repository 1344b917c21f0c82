"""Containers that do not hold to their limiters are stopped from outside, and go on in time.

Which containers is decided at each tick (`gpumanager.compute.overdraft`); here their processes
get SIGSTOP and SIGCONT. A stopped process launches nothing, and what it has queued runs on and is
paid for. All processes of the container are stopped, as far as its cgroup tells them, so that none
of them continues another; one that was continued nevertheless is stopped at the next tick.

A process stays stopped when nobody continues it. So before the first of a container is stopped,
that is written into the allocation's directory, and a manager that finds it there continues them
all. Where it cannot be written nobody is paused.
"""

import logging
import signal
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumanager.virtual.peers import Neighbours
from gpumanager.virtual.processes import Process, find, pidfd_of
from gpumanager.virtual.values import AllocationID

log = logging.getLogger(__name__)

MARK: Final = "paused"
"""A file in the allocation's directory, while its container may be stopped."""

MOST: Final = 1024
"""Processes of a container that are signalled at a look."""


def send(process: Process, number: signal.Signals) -> bool:
    """Whether it was sent: not where the pid means another process by now."""
    with pidfd_of(process) as pidfd:
        if pidfd is None:
            return False
        try:
            signal.pidfd_send_signal(pidfd, number)
        except OSError as error:
            log.warning("cannot signal process %d with %s: %s", process.pid, number.name, error)
            return False
    return True


class Pausing:
    """Of a node. directory: of an allocation; neighbours: finds the processes of a container.
    send: as above."""

    def __init__(
        self,
        directory: Callable[[AllocationID], Path],
        neighbours: Neighbours | None = None,
        send: Callable[[Process, signal.Signals], bool] = send,
    ) -> None:
        self._directory = directory
        self._neighbours = neighbours
        self._send = send
        self._stopped: dict[AllocationID, set[Process]] = {}
        self._marked: set[AllocationID] = set()

    def keep(
        self,
        held: Collection[AllocationID],
        paused: Collection[AllocationID],
        processes: Callable[[AllocationID], Iterable[Process]],
    ) -> None:
        """From now on these are paused, and nobody else. held: those that may be paused at any
        look. processes: of an allocation, as far as it knows them."""
        for one in self._marked - set(held):
            self.resume(one, processes(one))
        for one in held:
            if one not in paused:
                self._send_continue(one, ())
            elif self._mark(one):
                self._stop(one, processes(one))

    def resume(self, allocation: AllocationID, processes: Iterable[Process]) -> None:
        """All of its processes, whoever stopped them; it is held no more."""
        if allocation in self._marked or self._path(allocation).exists():
            self._send_continue(allocation, self._all(processes))
            with suppress(OSError):
                self._path(allocation).unlink(missing_ok=True)
            self._marked.discard(allocation)

    def _path(self, allocation: AllocationID) -> Path:
        return self._directory(allocation) / MARK

    def _mark(self, allocation: AllocationID) -> bool:
        if allocation in self._marked:
            return True
        try:
            self._path(allocation).touch(mode=0o644)
        except OSError as error:
            log.warning("cannot pause allocation %s: %s", allocation, error)
            return False
        self._marked.add(allocation)
        return True

    def _all(self, processes: Iterable[Process]) -> set[Process]:
        """Those of its container, too."""
        known = set(processes)
        beside = [self._neighbours.beside(one) for one in known] if self._neighbours else []
        found = map(find, frozenset[int]().union(*beside))
        return known | {one for one in found if one is not None}

    def _stop(self, allocation: AllocationID, processes: Iterable[Process]) -> None:
        """Those that it has begun meanwhile as well, and those that somebody has continued."""
        found = sorted(self._all(processes), key=lambda one: one.pid)[:MOST]
        self._stopped[allocation] = {one for one in found if self._send(one, signal.SIGSTOP)}

    def _send_continue(self, allocation: AllocationID, others: Iterable[Process]) -> None:
        for one in self._stopped.pop(allocation, set()).union(others):
            self._send(one, signal.SIGCONT)
