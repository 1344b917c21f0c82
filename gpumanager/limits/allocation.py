"""One allocation being served: its directory, its regions, its socket, its living processes.

Opened again after a crash of the manager it finds everything in its files: the slots of processes
that live are watched again, all others are emptied, and a new socket replaces the old one.
"""

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import NvmlReader
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, lacks
from gpumanager.gpu.usage.process_memory import ProcessMemory
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.overhead import DriverOverhead, OverheadOutcome, OverheadSnapshot, plain
from gpumanager.limits.pages.books import Books, boot_id
from gpumanager.limits.pages.config import Config
from gpumanager.limits.pages.slot_file import SlotFile
from gpumanager.limits.pages.slot_table import SlotTable, TakenSlot
from gpumanager.limits.processes import POLL_SECONDS, Process, Watcher, exiting, find, runs_in
from gpumanager.limits.socket.bounds import Descriptors, RepeatedLog, TokenBucket
from gpumanager.limits.socket.listener import DEADLINE_SECONDS, SocketListener
from gpumanager.limits.socket.peers import PeerCheck, peer_pid, refuse_other_pod, send_welcome
from gpumanager.limits.socket.protocol import (
    NO_SLOT,
    Greeting,
    Hello,
    HelloRefused,
    Http2,
    refusal,
    refused_by_system,
)
from gpumanager.limits.turns import AllocationTurns, Turns, shared
from gpumanager.limits.values import AllocationUsage, Limit
from gpumanager.names import BOOKS_NAME, CONFIG_NAME, CONTAINER_TURNS

log = logging.getLogger(__name__)


MEASURING_TRIES: Final = 3
"""How often a process is measured while its memory moves."""

MEASURED_PER_SECOND: Final = 10_000
MEASURED_AT_ONCE: Final = 100_000
"""Processes of one container: one that asks has its peers measured, too."""

MOVING_SECONDS: Final = 0.01
"""Until a process is measured again that moves memory now; most calls take less."""

RECOVER_SECONDS: Final = 5.0
"""Between two looks for books that processes have and have not given back."""


class HttpCallers(Protocol):
    """Answers the callers of one socket that speak HTTP/2: `legacy.gpu_client`."""

    def answer(self, connection: socket.socket, begun: bytes) -> Coroutine[None, None, None]:
        """Return all of a connection. begun: what was read of it already."""

    def limits_changed(self) -> None: ...
    def refresh(self) -> None: ...


class HttpSockets(Protocol):
    """Makes them, one for each allocation: `legacy.sockets`."""

    def at_socket(
        self, directory: Path, allocation: AllocationID, limits: Callable[[], tuple[Limit, ...]]
    ) -> HttpCallers: ...
    @property
    def registered(self) -> bool:
        """Return whether any has a container, whose processes have no slots."""

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Means:
    """What all allocations of a manager work with.

    nvml: tells what each process holds; None: nobody does. peers: knows whose processes call; None:
    not known. legacy: answers callers that speak HTTP/2; None: nobody does. deadline_seconds: for a
    caller to finish its HELLO. poll_seconds: between two looks whether processes live that have no
    pidfd.
    """

    turns: Turns
    descriptors: Descriptors
    nvml: NvmlReader | None = None
    peers: PeerCheck | None = None
    legacy: HttpSockets | None = None
    deadline_seconds: float = DEADLINE_SECONDS
    poll_seconds: float = POLL_SECONDS


class ServedAllocation:
    """Serves `directory`, which exists, in the running loop until close().

    May raise RegionBroken, SocketPathTooLong and OSError, and then holds nothing.
    """

    def __init__(
        self, directory: Path, allocation: AllocationID, limits: Sequence[Limit], means: Means
    ) -> None:
        self.directory = directory
        self.allocation = allocation
        self._means = means
        self._said = RepeatedLog(log, str(directory))
        self._measures = TokenBucket(MEASURED_PER_SECOND, MEASURED_AT_ONCE)
        self._limits = tuple(limits)
        self._try_again = 0.0
        self._mounted = False
        self._measured: OverheadSnapshot | None = None
        self.joined: AllocationTurns | None = None
        """Its turns; None if it takes none."""
        boot = boot_id()
        if SlotFile.of_another_boot(directory, boot):
            for name in (CONFIG_NAME, BOOKS_NAME):
                (directory / name).unlink(missing_ok=True)
        with ExitStack() as undo:
            self._config = undo.enter_context(Config.prepare(directory, allocation, limits))
            self.books = undo.enter_context(Books.prepare(directory, boot))
            self._watcher = Watcher(means.descriptors, means.poll_seconds)
            undo.callback(self._watcher.close)
            self._slots = SlotTable(
                self.books,
                self._watcher,
                0 if means.nvml is None else len(self._limits),
                lambda one: refuse_other_pod(means.peers, allocation, one) is None,
                self._slot_changed,
            )
            undo.callback(self._leave_turns)
            self._join_turns()
            self._overheads = DriverOverhead(self._config, self.books)
            self._clients = (
                means.legacy.at_socket(directory, allocation, self._config.limits)
                if means.legacy
                else None
            )
            self._listener = SocketListener(
                directory,
                self._answer,
                deadline_seconds=means.deadline_seconds,
                descriptors=means.descriptors,
                said=self._said,
            )
            self._closing = undo.pop_all()

    def close(self) -> None:
        """Stop serving. The files stay, and so do the limits of running processes."""
        self._said.summarize(after=0)
        self._listener.close()
        self._closing.close()

    def _join_turns(self) -> None:
        """Join the arbiter once all that it takes is there; safe to repeat."""
        limits = self._config.limits()
        if self.joined is not None or self.books.trouble or not any(map(shared, limits)):
            return
        self.joined = self._means.turns.join(self.allocation, limits, self.books.hints)
        for process, taken in self._slots.all():
            self._slot_changed(taken.slot, process)

    def _leave_turns(self) -> None:
        joined, self.joined = self.joined, None
        if joined is not None:
            joined.close()

    def _slot_changed(self, slot: int, process: Process | None) -> None:
        if self.joined is None:
            return
        if process is None:
            self.joined.remove(slot)
        else:
            self.joined.add(slot, self._watcher.pidfd(process))

    def write_meters(self) -> bool:
        """Enter into its books what its turns were charged. Return False if it takes none: it
        shares no GPU, or began under an agent of before and has no words mounted."""
        if self.joined is None:
            return False
        self._mounted = self._mounted or (self.directory / CONTAINER_TURNS.name).is_dir()
        if self._mounted:
            self.joined.write_meters(self.books.words.meters)
        return self._mounted

    def write(self, limits: Sequence[Limit]) -> None:
        """Apply these limits from now on; do nothing where they hold already."""
        if self._limits == tuple(limits):
            return
        self._config.write(limits)
        self._limits = tuple(limits)
        if self._clients is not None:
            self._clients.limits_changed()
        if self.joined is not None:
            self.joined.weigh(self._means.turns.seats(self._config.limits()))
        else:
            self._join_turns()

    @property
    def gpus(self) -> frozenset[GpuUUID]:
        """Return those it may use, by their bare UUIDs."""
        return frozenset(bare(limit.gpu) for limit in self._limits)

    @property
    def limited_gpus(self) -> frozenset[GpuUUID]:
        """Return those of them of whose time it has a guaranteed part."""
        return frozenset(bare(limit.gpu) for limit in self._limits if shared(limit))

    @property
    def processes(self) -> tuple[Process, ...]:
        """Return those that are known."""
        return tuple(owner for owner, _ in self._slots.all())

    def snapshot(self) -> OverheadSnapshot:
        """Return what to keep before a measurement of all its processes; without those that cannot
        be measured now, for their memory moves."""
        marks = {owner: self._overheads.mark(taken.slot) for owner, taken in self._slots.all()}
        meters = self.books.words.meters
        return OverheadSnapshot(
            time.monotonic(),
            {owner: mark for owner, mark in marks.items() if mark.activity is not None},
            self._slots.exited,
            sum(meters[device].launches for device in range(len(self._limits))),
        )

    def is_stale(self, now: OverheadSnapshot) -> bool:
        """Return whether a measurement would find something else than the last one."""
        return now.has_news(self._measured)

    def enter(
        self, before: OverheadSnapshot, held: ProcessMemory
    ) -> Mapping[Process, OverheadOutcome]:
        """Enter what was measured after `before`; a process that moved memory is measured later."""
        self._measured = before
        slots = dict(self._slots.all())
        outcomes = {
            owner: self._overheads.enter(
                taken.slot, owner.pid, taken.stack, before.marks[owner], held
            )
            for owner, taken in slots.items()
            if owner in before.marks
        }
        if any(outcomes.get(one, OverheadOutcome.MOVED) is OverheadOutcome.MOVED for one in slots):
            return outcomes
        self._slots.forget_exited(before.exited)
        for owner, outcome in outcomes.items():
            if outcome is OverheadOutcome.ENTERED:
                self._overheads.drop_estimate(slots[owner].slot, before.marks[owner])
        return outcomes

    def usage(self) -> AllocationUsage:
        rows = [(one.slot, who, one.adopted) for who, one in self._slots.all()]
        return self.books.usage(self._config, rows)

    def sweep(self) -> None:
        """Find what causes no event: programs and gpu-clients that have gone, disks that work
        again, books that were missing."""
        if self._clients is not None:
            self._clients.refresh()
        self._slots.sweep()
        self._config.recover()
        if self.books.trouble and time.monotonic() >= self._try_again:
            self._try_again = time.monotonic() + RECOVER_SECONDS
            if self.books.recover():
                try:
                    self._join_turns()
                except (OSError, GpuManagerError) as error:  # not the trouble of other allocations
                    self._said.say(logging.WARNING, "turns", f"cannot take turns: {error}")
        self._said.summarize()

    async def _answer(
        self, connection: socket.socket, hello: Greeting
    ) -> Callable[[], None] | None:
        """Send a WELCOME, now or after measuring. A caller that has gone is no error."""
        if isinstance(hello, Http2):
            if self._clients:
                await self._clients.answer(connection, hello.begun)
            return None
        try:
            pid = peer_pid(connection)
            if isinstance(hello, HelloRefused):
                refused: HelloRefused | None = hello
            else:
                refused = await self._measure(pid) if hello.measure and not hello.observer else None
                refused = refused or self._admit(connection, pid, hello)
            if refused is not None:
                self._said.say(logging.INFO, refused.number, f"refused: {refused.reason}")
                connection.send(refusal(refused), socket.MSG_DONTWAIT)
        except OSError as error:
            self._said.say(logging.INFO, "lost", f"caller lost: {error.strerror}")
            return None
        if isinstance(hello, Hello) and hello.persistent and not hello.observer:
            process = self._slots.of_pid(pid)
            return self._watcher.keep(process, connection) if process else None
        return None

    async def _measure(self, pid: int) -> HelloRefused | None:
        """Enter what the driver holds for this process and its peers, of which old figures could
        cost it a refusal, too; return why that cannot be."""
        owner, nvml = self._slots.of_pid(pid), self._means.nvml
        if owner is None or nvml is None:
            return HelloRefused(errno.ENODATA, "the manager does not measure")
        if not self._measures.take(time.monotonic(), len(self._slots)):
            return HelloRefused(errno.EBUSY, "its processes ask too often to be measured")
        unlisted = False
        for _ in range(MEASURING_TRIES):
            taken = self._slots.get(owner)
            outcome = await self._measure_once(nvml, owner, taken)
            if isinstance(outcome, HelloRefused):
                return outcome
            if outcome is OverheadOutcome.ENTERED:
                return None
            if outcome is OverheadOutcome.UNLISTED and not unlisted:
                # Killed while it asked, perhaps: the driver has let go of it, and nobody was
                # told yet. Nothing is assumed of contexts because of that.
                unlisted = True
            elif outcome is OverheadOutcome.UNLISTED:
                if taken and not exiting(owner) and runs_in(taken.stack, owner):
                    self._overheads.assume(owner.pid)
                return HelloRefused(
                    errno.ENODATA, "the driver does not tell what this process holds"
                )
        return HelloRefused(errno.EBUSY, "memory moved all the while")

    async def _measure_once(
        self, nvml: NvmlReader, owner: Process, taken: TakenSlot | None
    ) -> OverheadOutcome | HelloRefused:
        if taken is None:
            return OverheadOutcome.UNLISTED
        before = self.snapshot()
        if owner not in before.marks:  # another thread compiles a module, perhaps: wait for it
            await asyncio.sleep(MOVING_SECONDS)
            return OverheadOutcome.MOVED
        reading = await nvml.read(NvmlQuery(processes=self.gpus))
        if reading is None or lacks(reading, self.gpus):
            why = "a GPU does not answer NVML" if reading else nvml.failure
            return HelloRefused(errno.EIO, f"memory of processes: {why}")
        if self._slots.get(owner) is not taken:
            return OverheadOutcome.UNLISTED  # it died, or is another program by now
        return self.enter(before, plain(reading.held))[owner]

    def _admit(self, connection: socket.socket, pid: int, hello: Hello) -> HelloRefused | None:
        """Send a WELCOME with the books; return why not. pid: 0 where we cannot see the caller."""
        process = (find(pid) if hello.observer else self._slots.watch(pid)) if pid else None
        try:
            if refused := self._obstacle(pid, process, hello):
                return refused
            books = self.books.open_for(observer=hello.observer)
            try:
                if hello.observer or process is None:
                    send_welcome(connection, NO_SLOT, [books])
                    return None
                before = self._slots.get(process)
                taken = self._slots.give(process, hello, books)
                if isinstance(taken, HelloRefused):
                    return taken
                if not send_welcome(connection, taken.slot, [books]) and taken is not before:
                    self._slots.leave(process)
            finally:
                os.close(books)
        except OSError as error:
            return refused_by_system("opening the regions", error)
        finally:
            if process and not hello.observer:
                self._slots.let_go(process)
        return None

    def _obstacle(self, pid: int, process: Process | None, hello: Hello) -> HelloRefused | None:
        if process is None and pid:
            return HelloRefused(errno.ESRCH, "the process has ended")
        if process is None and not hello.observer:
            return HelloRefused(
                errno.ESRCH, "the manager cannot see this process: it needs hostPID"
            )
        other = process and refuse_other_pod(self._means.peers, self.allocation, process)
        trouble = self.books.trouble
        return other or (HelloRefused(errno.EAGAIN, trouble) if trouble else None)
