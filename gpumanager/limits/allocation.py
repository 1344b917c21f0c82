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
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import NvmlReader
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, lacks
from gpumanager.gpu.usage.process_memory import ProcessMemory
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.overhead.context_sizes import ContextSizes
from gpumanager.limits.overhead.driver_overhead import (
    DriverOverhead,
    OverheadMark,
    OverheadOutcome,
    plain,
)
from gpumanager.limits.pages.books import Books, boot_id
from gpumanager.limits.pages.config import Config
from gpumanager.limits.pages.mapping import RegionUnreadable, close_all, open_region
from gpumanager.limits.pages.region import UsageReader
from gpumanager.limits.pages.slot_file import SlotFile
from gpumanager.limits.pages.slot_table import SlotTable
from gpumanager.limits.processes import POLL_SECONDS, Deaths, Process, Watcher, exiting
from gpumanager.limits.socket.bounds import RepeatedLog, TokenBucket
from gpumanager.limits.socket.listener import DEADLINE_SECONDS, SocketListener
from gpumanager.limits.socket.peers import (
    PeerCheck,
    peer_pid,
    refuse_observer,
    refuse_other_pod,
    send_welcome,
)
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
from gpumanager.units import CORES_PER_GPU

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

OLD_SHIM: Final = "the shim in this container is older than its books: start the container again"

_UNMEASURED: Final = {
    OverheadOutcome.MOVED: HelloRefused(errno.EBUSY, "memory moved all the while"),
    OverheadOutcome.UNLISTED: HelloRefused(
        errno.ENODATA, "the driver does not tell what this process holds"
    ),
}


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


class ServedAllocation:
    """Serves `directory`, which exists, in the running loop until close().

    May raise RegionBroken, SocketPathTooLong and OSError, and then holds nothing.
    """

    def __init__(
        self,
        directory: Path,
        allocation: AllocationID,
        limits: Sequence[Limit],
        *,
        turns: Turns,
        nvml: NvmlReader | None = None,
        sizes: ContextSizes | None = None,
        on_size: Callable[[], None] | None = None,
        legacy: HttpSockets | None = None,
        deaths: Deaths,
        peers: PeerCheck | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.directory = directory
        self.allocation = allocation
        self._nvml = nvml
        self._peers = peers
        self._said = RepeatedLog(log, str(directory))
        self._measures = TokenBucket(MEASURED_PER_SECOND, MEASURED_AT_ONCE)
        self._limits = tuple(limits)
        self._try_again = 0.0
        self._turns = turns
        self._joined: AllocationTurns | None = None
        self._mounted = False
        boot = boot_id()
        if SlotFile.of_another_boot(directory, boot):
            for name in (CONFIG_NAME, BOOKS_NAME):
                (directory / name).unlink(missing_ok=True)
        with ExitStack() as undo:
            self._config = undo.enter_context(Config.prepare(directory, allocation, limits))
            self._books = undo.enter_context(Books.prepare(directory, boot))
            self._watcher = Watcher(deaths, poll_seconds)
            undo.callback(self._watcher.close)
            measured = 0 if nvml is None else len(self._limits)
            self._slots = SlotTable(
                self._books,
                self._watcher,
                measured,
                lambda one: refuse_other_pod(peers, allocation, one) is None,
                self._slot_changed,
            )
            undo.callback(self._leave_turns)
            self._join_turns()
            self._usage = UsageReader(self._config, self._books)
            self._overheads = DriverOverhead(
                allocation,
                self._config,
                self._books,
                sizes or ContextSizes(),
                on_size or self.write_contexts,
            )
            # Learn what a manager before us has measured, and write what we have.
            for gpu, size in self._config.contexts():
                self._overheads.recall(gpu, size)
            self.write_contexts()
            self._clients = (
                legacy.at_socket(directory, allocation, self._config.limits) if legacy else None
            )
            self._listener = SocketListener(
                directory,
                self._answer,
                deadline_seconds=deadline_seconds,
                descriptors=deaths.descriptors,
                said=self._said,
            )
            undo.pop_all()

    def close(self) -> None:
        """Stop serving. The files stay, and so do the limits of running processes."""
        self._said.summarize(after=0)
        with ExitStack() as closing:  # not kept from the start: it takes 2 KiB
            for part in (self._watcher, self._config, self._books, self._listener):
                closing.callback(part.close)
            closing.callback(self._leave_turns)

    def _join_turns(self) -> None:
        """Join the arbiter once all that it takes is there; safe to repeat."""
        limits = self._config.limits()
        if (
            self._joined is not None
            or not self._books.has_hints
            or not any(shared(limit) for limit in limits)
        ):
            return
        self._joined = self._turns.join(self.allocation, limits, self._books.hints)
        for process, taken in self._slots.all():
            self._slot_changed(taken.slot, process)

    def _leave_turns(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            joined.close()

    def _slot_changed(self, slot: int, process: Process | None) -> None:
        if self._joined is None:
            return
        if process is None:
            self._joined.remove(slot)
        else:
            self._joined.add(slot, self._watcher.pidfd(process))

    def count_turns(self) -> bool:
        """Enter into its meters what its turns were charged. Return False if it takes none: it
        shares no GPU, or began under an agent of before and has no words mounted."""
        if self._joined is None:
            return False
        self._mounted = self._mounted or (self.directory / CONTAINER_TURNS.name).is_dir()
        if not self._mounted:
            return False
        if not self._books.trouble:
            self._joined.write_meters(self._books.words.meters)
        return True

    @property
    def joined(self) -> AllocationTurns | None:
        """Return its turns; None if it takes none."""
        return self._joined

    def write(self, limits: Sequence[Limit]) -> None:
        """Apply these limits from now on; do nothing where they hold already."""
        if self._limits == tuple(limits):
            return
        self._config.write(limits)
        self._limits = tuple(limits)
        self.write_contexts()
        limits = self._config.limits()
        if self._clients is not None:
            self._clients.limits_changed()
        if self._joined is not None:
            self._joined.weigh(self._turns.seats(limits))
        else:
            self._join_turns()

    @property
    def books(self) -> Books:
        return self._books

    @property
    def gpus(self) -> frozenset[GpuUUID]:
        """Return those it may use, by their bare UUIDs."""
        return frozenset(bare(limit.gpu) for limit in self._limits)

    @property
    def limited_gpus(self) -> frozenset[GpuUUID]:
        """Return those of them of whose time it has a guaranteed part."""
        shared = (limit for limit in self._limits if 0 < limit.cores < CORES_PER_GPU)
        return frozenset(bare(limit.gpu) for limit in shared)

    @property
    def has_processes(self) -> bool:
        """Return whether any process of it is known."""
        return bool(self._slots)

    @property
    def processes(self) -> tuple[Process, ...]:
        """Return those that are known."""
        return tuple(owner for owner, _ in self._slots.all())

    def write_contexts(self) -> None:
        """Write for running processes what contexts take, as far as that is known by now."""
        self._config.write_contexts(self._overheads.context_size)

    def marks(self) -> dict[Process, OverheadMark]:
        """Return the marks to take before a measurement of all its processes; without those that
        cannot be measured now, for their memory moves."""
        marks = {owner: self._overheads.mark(taken.slot) for owner, taken in self._slots.all()}
        return {owner: mark for owner, mark in marks.items() if mark.activity is not None}

    @property
    def launches(self) -> int:
        """Return those of all its processes so far, on all its GPUs."""
        meters = self._books.words.meters
        return sum(meters[device].launches for device in range(len(self._limits)))

    @property
    def exited(self) -> tuple[Process, ...]:
        """Return dead processes that stay charged until all others are measured."""
        return self._slots.exited

    def enter(
        self, marks: Mapping[Process, OverheadMark], held: ProcessMemory, exited: Iterable[Process]
    ) -> Mapping[Process, OverheadOutcome]:
        """Enter what was measured after `marks`; a process that moved memory is measured later.

        exited: those of before the measurement.
        """
        outcomes = {
            owner: self._overheads.enter(taken.slot, owner.pid, taken.stack, marks[owner], held)
            for owner, taken in self._slots.all()
            if owner in marks
        }
        slots = dict(self._slots.all())
        if any(outcomes.get(one, OverheadOutcome.MOVED) is OverheadOutcome.MOVED for one in slots):
            return outcomes
        self._slots.forget_exited(exited)
        for owner, outcome in outcomes.items():
            if outcome is OverheadOutcome.ENTERED:
                self._overheads.drop_estimate(slots[owner].slot, marks[owner])
        return outcomes

    def usage(self) -> AllocationUsage:
        return self._usage.read([(one.slot, who, one.adopted) for who, one in self._slots.all()])

    def sweep(self) -> None:
        """Find what causes no event: programs and gpu-clients that have gone, disks that work
        again, books that were missing."""
        if self._clients is not None:
            self._clients.refresh()
        self._slots.sweep()
        self._config.recover()
        if self._books.trouble and time.monotonic() >= self._try_again:
            self._try_again = time.monotonic() + RECOVER_SECONDS
            if self._books.recover():
                try:
                    self._join_turns()
                except (OSError, GpuManagerError) as error:  # not the trouble of other allocations
                    self._said.say(logging.WARNING, "turns", f"cannot take turns: {error}")
        self._said.summarize()

    def _answer(
        self, connection: socket.socket, hello: Greeting
    ) -> Coroutine[None, None, None] | None:
        """Send a WELCOME, now or after measuring. A caller that has gone is no error."""
        if isinstance(hello, Http2):
            return self._clients.answer(connection, hello.begun) if self._clients else None
        if isinstance(hello, Hello) and hello.measure and not hello.observer:
            return self._answer_measured(connection, hello)
        self._answer_now(connection, hello)
        return None

    async def _answer_measured(self, connection: socket.socket, hello: Hello) -> None:
        self._answer_now(connection, hello, await self._measure(peer_pid(connection)))

    async def _measure(self, pid: int) -> HelloRefused | None:
        """Enter what the driver holds for this process; return why it cannot."""
        owner = self._slots.of_pid(pid)
        if owner is None or self._nvml is None:
            return HelloRefused(errno.ENODATA, "the manager does not measure")
        if not self._measures.take(time.monotonic(), len(self._slots)):
            return HelloRefused(errno.EBUSY, "its processes ask too often to be measured")
        unlisted = False
        for _ in range(MEASURING_TRIES):
            outcome = await self._measure_once(self._nvml, owner)
            if isinstance(outcome, HelloRefused):
                return outcome
            if outcome is OverheadOutcome.UNLISTED and not unlisted:
                # Killed while it asked, perhaps: the driver has let go of it, and nobody was
                # told yet. Nothing is assumed of contexts because of that.
                unlisted = True
            elif outcome is not OverheadOutcome.MOVED:
                taken = self._slots.get(owner) if outcome is OverheadOutcome.UNLISTED else None
                if taken and not exiting(owner) and taken.runs_in(owner):
                    self._overheads.assume(owner.pid)
                return _UNMEASURED.get(outcome)
        return _UNMEASURED[OverheadOutcome.MOVED]

    async def _measure_once(
        self, nvml: NvmlReader, owner: Process
    ) -> OverheadOutcome | HelloRefused:
        """Measure it with its peers: what is old of theirs could cost it a refusal, too."""
        marks, exited = self.marks(), self.exited
        taken = self._slots.get(owner)
        if taken is None:
            return OverheadOutcome.UNLISTED
        mark = self._overheads.mark(taken.slot)
        if mark.activity is None:  # another thread compiles a module, perhaps: that takes a while
            await asyncio.sleep(MOVING_SECONDS)
            return OverheadOutcome.MOVED
        reading = await nvml.read(NvmlQuery(processes=self.gpus))
        if reading is None:
            return HelloRefused(errno.EIO, f"memory of processes: {nvml.failure}")
        if lacks(reading, self.gpus):
            return HelloRefused(errno.EIO, "memory of processes: a GPU does not answer NVML")
        if self._slots.get(owner) is not taken:
            return OverheadOutcome.UNLISTED  # it died, or is another program by now
        return self.enter({**marks, owner: mark}, plain(reading.held), exited)[owner]

    def _answer_now(
        self,
        connection: socket.socket,
        hello: Hello | HelloRefused,
        refused: HelloRefused | None = None,
    ) -> None:
        try:
            if isinstance(hello, HelloRefused):
                refused = hello
            elif refused is None:
                refused = self._admit(connection, hello)
            if refused is not None:
                self._said.say(logging.INFO, refused.number, f"refused: {refused.reason}")
                connection.send(refusal(refused), socket.MSG_DONTWAIT)
            if isinstance(hello, Hello) and hello.persistent and not hello.observer:
                # Kept for what its process has to ask later; the listener has nothing to close.
                process = self._slots.of_pid(peer_pid(connection))
                if process is not None:
                    kept = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, connection.detach())
                    self._watcher.keep(process, kept, self._listener.serve_again)
        except OSError as error:
            self._said.say(logging.INFO, "lost", f"caller lost: {error.strerror}")

    def _admit(self, connection: socket.socket, hello: Hello) -> HelloRefused | None:
        try:
            pid = peer_pid(connection)
            if not hello.observer:
                return self._admit_process(connection, pid, hello)
            opened = refuse_observer(self._peers, self.allocation, pid) or self._open_for(hello)
            if isinstance(opened, HelloRefused):
                return opened
            try:
                send_welcome(connection, NO_SLOT, opened)
            finally:
                close_all(opened)
        except OSError as error:
            return refused_by_system("opening the regions", error)
        except RegionUnreadable as error:
            return HelloRefused(errno.EAGAIN, f"manager: {error}")
        return None

    def _open_for(self, hello: Hello) -> list[int] | HelloRefused:
        """Open what a caller is handed, which the caller of this closes: the books, and the
        configuration only for a shim of before it opened that by itself. Raises OSError and
        GpuManagerError."""
        if trouble := self._books.trouble:
            return HelloRefused(errno.EAGAIN, trouble)
        if hello.opens_config:
            return [self._books.open_for(observer=hello.observer)]
        if not self._books.plain:
            return HelloRefused(errno.EPROTO, OLD_SHIM)
        config = open_region(self._config.path, writable=False)
        try:
            return [config, self._books.open_for(observer=hello.observer)]
        except OSError:
            os.close(config)
            raise

    def _admit_process(
        self, connection: socket.socket, pid: int, hello: Hello
    ) -> HelloRefused | None:
        if pid == 0:
            return HelloRefused(
                errno.ESRCH, "the manager cannot see this process: it needs hostPID"
            )
        process = self._slots.watch(pid)
        if process is None:
            return HelloRefused(errno.ESRCH, "the process has ended")
        try:
            refused = refuse_other_pod(self._peers, self.allocation, process)
            opened = refused or self._open_for(hello)
            if isinstance(opened, HelloRefused):
                return opened
            try:
                before = self._slots.get(process)
                taken = self._slots.give(process, hello, books=opened[-1])
                if isinstance(taken, HelloRefused):
                    return taken
                if not send_welcome(connection, taken.slot, opened) and taken is not before:
                    self._slots.leave(process)
            finally:
                close_all(opened)
        finally:
            self._slots.let_go(process)
        return None
