"""One allocation being served: its directory, its regions, its socket, its living processes.

Opened again after a crash of the manager it finds everything in its files: the slots of processes
that live are watched again, all others are emptied, and the socket takes the dead one's place.
"""

import errno
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from gpumanager.compute.values import Grant, Reading
from gpumanager.virtual.alive import locked
from gpumanager.virtual.books import BOOKS, Seat
from gpumanager.virtual.config import CONFIG
from gpumanager.virtual.gpu_client import ForGpuClients, GpuClients
from gpumanager.virtual.listener import DEADLINE_SECONDS, Listener
from gpumanager.virtual.mapping import descriptors
from gpumanager.virtual.measuring import ContextSizes, Held, Measuring, MeasuringUnavailable
from gpumanager.virtual.meters import Meters, People
from gpumanager.virtual.overheads import Mark, Outcome, Overheads, plain
from gpumanager.virtual.peers import (
    PeerCheck,
    peer_pid,
    refuse_observer,
    refuse_stranger,
    send_welcome,
)
from gpumanager.virtual.processes import POLL_SECONDS, Process, Watcher, find, stack_of
from gpumanager.virtual.protocol import (
    NO_SLOT,
    Greeting,
    Hello,
    Http2,
    Refused,
    refusal,
    refused_by_system,
)
from gpumanager.virtual.region import UsageReader
from gpumanager.virtual.spares import Spare, opened
from gpumanager.virtual.usage import AllocationUsage
from gpumanager.virtual.values import AllocationID, Limit

log = logging.getLogger(__name__)


MEASURING_TRIES: Final = 3
"""How often a process is measured whose memory moves meanwhile."""

_UNMEASURED: Final = {
    Outcome.MOVED: Refused(errno.EBUSY, "memory moved all the while"),
    Outcome.UNLISTED: Refused(errno.ENODATA, "the driver does not tell what this process holds"),
}


class ServedAllocation:
    """Serves `directory`, which exists, in the running loop until close().

    spare: what is in it, where it was made ahead.
    May raise RegionBroken, SocketPathTooLong and OSError, and then holds nothing.
    """

    def __init__(
        self,
        directory: Path,
        allocation: AllocationID,
        limits: Sequence[Limit],
        *,
        measuring: Measuring | None = None,
        sizes: ContextSizes | None = None,
        on_size: Callable[[], None] | None = None,
        clients: ForGpuClients,
        spare: Spare | None = None,
        peers: PeerCheck | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.directory = directory
        self.allocation = allocation
        self._measuring = measuring
        self._peers = peers
        self._sizes = sizes or ContextSizes()
        self._paths = (str(directory / CONFIG.name), str(directory / BOOKS.name))
        self._seats: dict[Process, Seat] = {}
        self._pids: frozenset[int] | None = None
        self._departed = self._fled = 0
        self._limits = tuple(limits)
        with ExitStack() as undo:
            self._watcher = Watcher(poll_seconds)
            undo.callback(self._watcher.close)
            regions = opened(undo, directory, allocation, limits, spare)
            self._config, self._books = regions
            self._usage = UsageReader(*regions)
            self._overheads = Overheads(
                self._config, self._books, self._sizes, on_size or self.write_contexts
            )
            self._meters = Meters(allocation, self._config.limits(), self._books)
            self._exchange_sizes()
            self._reconcile()
            self._clients = GpuClients(
                clients,
                directory,
                allocation,
                lambda _: self._config.limits(),
                peers=peers,
                fresh=spare is not None,
            )
            self._listener = Listener(
                directory,
                self._answer,
                listening=spare.listening if spare else None,
                deadline_seconds=deadline_seconds,
            )
            undo.pop_all()

    def close(self) -> None:
        """Stop serving. The files stay, and so do the limits of running processes."""
        with ExitStack() as closing:  # not kept from the start: it takes 2 KiB
            for part in (self._watcher, self._config, self._books, self._listener):
                closing.callback(part.close)

    def write(self, limits: Sequence[Limit]) -> None:
        """From now on these hold; nothing is done where they do already."""
        if self._limits == tuple(limits):
            return
        self._limits = tuple(limits)
        self._config.write(limits)
        self.write_contexts()
        self._meters = Meters(self.allocation, self._config.limits(), self._books)
        self._clients.limits_changed()

    @property
    def seated(self) -> bool:
        """Whether any process of it is known."""
        return bool(self._seats)

    def readings(self) -> tuple[Reading, ...]:
        """What its meters say of each of its GPUs."""
        if self._pids is None:
            self._pids = frozenset(process.pid for process in self._seats)
        unpaid = any(self._books.explores(seat.slot) for seat in self._seats.values())
        return self._meters.read(People(self._pids, self._departed, self._fled, unpaid))

    def grant(self, device: int, grant: Grant, until_ns: int) -> None:
        """What it may charge of a GPU until then."""
        self._config.grant(device, grant, until_ns)
        if grant.debt_ns:
            self._books.settle(device, grant)

    def write_contexts(self) -> None:
        """Tell running processes what contexts take, as far as that is known by now."""
        self._config.write_contexts(self._sizes.of)

    def marks(self) -> dict[Process, Mark]:
        """To be taken before a measurement of all its processes."""
        return {owner: self._overheads.mark(seat.slot) for owner, seat in self._seats.items()}

    def enter(self, marks: dict[Process, Mark], held: Held) -> None:
        """What was measured after `marks`; who moved memory meanwhile is left for the next time."""
        for owner, mark in marks.items():
            seat = self._seats.get(owner)
            if seat is not None:
                self._overheads.enter(seat.slot, owner.pid, mark, held)

    def _exchange_sizes(self) -> None:
        """Learn what a manager before us knew, and hand on what we know."""
        for gpu, size in self._config.contexts():
            self._sizes.recall(gpu, size)
        self.write_contexts()

    def usage(self) -> AllocationUsage:
        return self._usage.read(seated=self.seated)

    def _reconcile(self) -> None:
        """Watch the living, empty all other slots: nobody was here to see the deaths."""
        for slot, owner in self._books.owners():
            if owner is not None and self._watcher.watch(owner, self._release):
                self._seats[owner] = Seat(slot, stack_of(owner))
            else:
                self._books.free(slot)

    def sweep(self) -> None:
        """Free the slots of programs that have gone: by exec, or by a death that nobody told of.

        What a program held went with it, though its process may run another one by now.
        """
        self._clients.refresh()
        for process, seat in list(self._seats.items()):
            found = find(process.pid)
            if found != process or (
                found.stack != seat.stack and 0 not in (found.stack, seat.stack)
            ):
                self._watcher.forget(process)
                self._release(process)

    def _release(self, process: Process) -> None:
        seat = self._seats.pop(process, None)
        if seat is not None:
            self._pids = None
            self._departed += 1
            self._fled += self._books.explores(seat.slot)
            self._books.release(seat.slot, process)

    def _answer(
        self, connection: socket.socket, hello: Greeting
    ) -> Coroutine[None, None, None] | None:
        """One WELCOME, now or after measuring. A caller that has gone meanwhile is no error."""
        if isinstance(hello, Http2):
            return self._clients.answer(connection, hello.begun)
        if isinstance(hello, Hello) and hello.measure and not hello.observer:
            return self._answer_measured(connection, hello)
        self._answer_now(connection, hello)
        return None

    async def _answer_measured(self, connection: socket.socket, hello: Hello) -> None:
        refused = await self._measure(peer_pid(connection))
        self._answer_now(connection, refused or hello)

    async def _measure(self, pid: int) -> Refused | None:
        """Enter what the driver holds for this process."""
        owner = next((process for process in self._seats if process.pid == pid), None)
        if owner is None or self._measuring is None:
            return Refused(errno.ENODATA, "the manager does not measure")
        try:
            for _ in range(MEASURING_TRIES):
                outcome = await self._measure_once(self._measuring, owner)
                if outcome is not Outcome.MOVED:
                    return _UNMEASURED.get(outcome)
        except MeasuringUnavailable as error:
            return Refused(errno.EIO, str(error))
        return _UNMEASURED[Outcome.MOVED]

    async def _measure_once(self, measuring: Measuring, owner: Process) -> Outcome:
        slot = self._seats[owner].slot
        mark = self._overheads.mark(slot)
        held = plain(await measuring.fresh())
        if owner not in self._seats or self._seats[owner].slot != slot:
            return Outcome.UNLISTED  # it died, or is another program by now
        outcome = self._overheads.enter(slot, owner.pid, mark, held)
        if outcome is Outcome.UNLISTED:
            self._overheads.assume(owner.pid)
        return outcome

    def _answer_now(self, connection: socket.socket, hello: Hello | Refused) -> None:
        try:
            outcome = hello if isinstance(hello, Refused) else self._admit(connection, hello)
            if isinstance(outcome, Refused):
                log.info("%s: refused: %s", self.directory, outcome.reason)
                connection.send(refusal(outcome))
        except OSError as error:
            log.info("%s: caller lost: %s", self.directory, error.strerror)

    def _admit(self, connection: socket.socket, hello: Hello) -> Refused | None:
        pid = peer_pid(connection)
        try:
            with descriptors(*self._paths, observer=hello.observer) as opened:
                if hello.observer:
                    if stranger := refuse_observer(self._peers, self.allocation, pid):
                        return stranger
                    send_welcome(connection, NO_SLOT, opened)
                    return None
                return self._admit_process(connection, pid, hello, opened)
        except OSError as error:
            return refused_by_system("opening the regions", error)

    def _admit_process(
        self, connection: socket.socket, pid: int, hello: Hello, descriptors: list[int]
    ) -> Refused | None:
        process = self._watch(pid)
        if isinstance(process, Refused):
            return process
        seat = self._seats.get(process)
        if seat is not None and (hello.keep or seat.stack == process.stack != 0):
            send_welcome(connection, seat.slot, descriptors)  # another copy of the shim asks
            return None
        if hello.keep:
            return Refused(errno.ESTALE, "the process has no slot to keep")
        _config, books = descriptors
        slot = self._books.claim(process, hello.pid, lambda slot: locked(books, slot))
        if slot is None:
            self._watcher.forget(process)
            return Refused(errno.ENOSPC, "all slots are taken: too many processes use the GPU")
        self._seats[process] = Seat(slot, process.stack)
        self._pids = None
        if not send_welcome(connection, slot, descriptors):
            self._watcher.forget(process)
            self._release(process)
        return None

    def _watch(self, pid: int) -> Process | Refused:
        """The caller, watched from now on, if it may have a slot here."""
        if pid == 0:
            return Refused(errno.ESRCH, "the manager cannot see this process: it needs hostPID")
        process = self._watcher.watch_pid(pid, self._release)
        if process is None:
            return Refused(errno.ESRCH, "the process has ended")
        stranger = refuse_stranger(self._peers, self.allocation, process)
        if stranger and process not in self._seats:
            self._watcher.forget(process)
        return stranger or process
