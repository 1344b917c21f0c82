"""The virtual manager: one directory with one `vcuda.sock` per allocation.

    <root>/alloc/<allocation>/     mounted read-only at /etc/vcuda
        vcuda.sock                 HELLO here; the kernel names the caller
        config                     what the container may use; readable by all, written by us
        turns/                     of one that takes turns: where those are mounted (turns.py)
        books                      by which the next manager restores the slots: slot_table.py
        <container ID>/            for vcuda-controller: legacy/gpu_client.py
    <root>/<pod UID>/              of a pod that began under gpu-manager: legacy/sockets.py

It keeps nothing that is not in those files, or in memory that the containers' processes share with
it: after a crash, opening the allocations again is all there is to recovery.
"""

import asyncio
import logging
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import READ_SECONDS, NvmlReader, NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, lacks
from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.allocation import HttpSockets, ServedAllocation
from gpumanager.limits.outside import OutsideUse
from gpumanager.limits.overhead.context_sizes import ContextSizes, ModelOf, unknown_model
from gpumanager.limits.overhead.driver_overhead import Staleness, plain
from gpumanager.limits.pages.books import moves
from gpumanager.limits.pages.config import Config
from gpumanager.limits.pages.region import read_usage
from gpumanager.limits.pausing import Freezer, Pauser
from gpumanager.limits.processes import POLL_SECONDS, Deaths, Process
from gpumanager.limits.socket.bounds import Descriptors
from gpumanager.limits.socket.listener import DEADLINE_SECONDS
from gpumanager.limits.socket.peers import PeerCheck, ProcessOwners
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import AllocationUsage, Limit
from gpumanager.names import CONTAINER_TURNS, DRIVER_NAME

log = logging.getLogger(__name__)

DEFAULT_ROOT: Final = Path("/etc/gpu-manager/vm")
SWEEP_SECONDS: Final = 1.0
SAMPLE_SECONDS: Final = 0.5
"""Between two samples of utilization: a sample names one process, so a few are as good as all."""
TICK_SECONDS: Final = 0.1
"""Between two looks at the turns of all containers."""
QUIET_SECONDS: Final = 6.0
"""After so long without a move of any container the node is quiet: nothing is left to measure."""
QUIET_TICK_SECONDS: Final = 1.0
"""On a quiet node, between two looks whether a container has moved."""
QUIET_SAMPLE_SECONDS: Final = 5.0
QUIET_SWEEP_SECONDS: Final = 30.0
"""And for what moves no word: work outside of turns, and programs that have gone."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SPARE: Final = ".spare-*"
"""Directories that earlier versions made ahead, for no allocation."""


class VirtualManagerFailed(GpuManagerError):
    """The file system refuses what the virtual manager needs."""

    def __init__(self, doing: str, path: Path, error: OSError) -> None:
        super().__init__(f"{doing} {path}: {error.strerror or error}")


class VirtualManager:
    """Serves allocations under `root`, in the loop of its first open(), until stop().

    nvml: tells what each process holds, and how busy each keeps the GPUs; None: nobody does, and
    time outside of turns is not seen. model_of: tells a GPU's model, so that what is learnt of one
    helps with others. peers: knows whose processes call, owners: whose use a GPU; None: they are
    not known. legacy: answers callers that speak HTTP/2; None: nobody does. deadline_seconds: for a
    caller to finish its HELLO. sweep_seconds: between two looks for programs that have gone without
    a word. quiet_seconds: without a move of any container until the node is quiet. read_seconds:
    for NVML to answer. turns: by which containers share the time of GPUs. pauses: whether
    containers that go past them are paused, and freezer: by what; None where none can be.
    """

    def __init__(
        self,
        root: Path = DEFAULT_ROOT,
        *,
        turns: Turns,
        nvml: NvmlService | None = None,
        model_of: ModelOf = unknown_model,
        peers: PeerCheck | None = None,
        owners: ProcessOwners | None = None,
        legacy: HttpSockets | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        sweep_seconds: float = SWEEP_SECONDS,
        quiet_seconds: float = QUIET_SECONDS,
        read_seconds: float = READ_SECONDS,
        pauses: bool = False,
        freezer: Freezer | None = None,
    ) -> None:
        self._sweep_seconds = sweep_seconds
        self._quiet_seconds = quiet_seconds
        self._sweep: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._pages: dict[AllocationID, Any] = {}
        """The words of all books."""
        self._moves: tuple[int, ...] = ()
        self._moved_at = 0.0
        self._measured = False
        """Whether the last pass found nothing to measure."""
        self._awake = asyncio.Event()
        """Cleared while the node is quiet."""
        self._awake.set()
        self._directory = root / "alloc"
        self._memory = self._utilization = None
        if nvml is not None:
            self._memory = NvmlReader(nvml, "cannot measure driver overhead", read_seconds)
            self._utilization = NvmlReader(
                nvml, "cannot read the GPU utilization of processes", read_seconds
            )
        self._pauses = pauses
        self._pauser = Pauser(self.directory, freezer)
        self._staleness = Staleness()
        self._sizes = ContextSizes(model_of)
        self._peers = peers
        self._legacy = legacy
        self._deadline_seconds = deadline_seconds
        self._poll_seconds = poll_seconds
        self._served: dict[AllocationID, ServedAllocation] = {}
        self._turns = turns
        self._outside = OutsideUse(turns, owners)
        self._deaths: Deaths | None = None
        self._descriptors = Descriptors.allowed()

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        """Serve this allocation, now with these limits; safe to repeat. Return its directory."""
        directory = self.directory(allocation)
        served = self._served.get(allocation)
        if served is not None:
            served.write(limits)
            return directory
        try:
            if self._deaths is None:
                self._deaths = Deaths(self._descriptors)
            with ExitStack() as undo:
                if make_directory(directory):
                    undo.callback(shutil.rmtree, directory, ignore_errors=True)
                served = ServedAllocation(
                    directory,
                    allocation,
                    limits,
                    nvml=self._memory,
                    sizes=self._sizes,
                    on_size=self._spread_sizes,
                    legacy=self._legacy,
                    deaths=self._deaths,
                    peers=self._peers,
                    turns=self._turns,
                    deadline_seconds=self._deadline_seconds,
                    poll_seconds=self._poll_seconds,
                )
                self._served[allocation], self._pages[allocation] = served, served.books.words
                undo.pop_all()
            self._pauser.resume(allocation)  # a manager before us paused it
        except OSError as error:
            raise VirtualManagerFailed("cannot serve", directory, error) from error
        finally:
            self._let_go()
        self._sweep_later()
        return directory

    def turns(self, allocation: AllocationID) -> Path | None:
        """Return the folder to mount at /etc/vcuda/turns; None for one that takes no turns."""
        served = self._served.get(allocation)
        if served is None or served.joined is None:
            return None
        place = self.directory(allocation) / CONTAINER_TURNS.name
        try:
            place.mkdir(mode=0o711, exist_ok=True)
        except OSError as error:
            raise VirtualManagerFailed("cannot make", place, error) from error
        return self._turns.folder(allocation)

    def link_driver(self, allocation: AllocationID, driver: Path) -> Path:
        """Make the link to its driver lead there; return the link."""
        link = self.directory(allocation) / DRIVER_NAME
        fresh = link.with_suffix(".new")
        try:
            if not link.is_symlink() or link.readlink() != driver:
                fresh.unlink(missing_ok=True)
                fresh.symlink_to(driver)
                fresh.rename(link)
        except OSError as error:
            raise VirtualManagerFailed("cannot make", link, error) from error
        return link

    async def close(self, allocation: AllocationID) -> None:
        """Stop serving it and remove its directory; an unknown allocation is no error."""
        directory = self.directory(allocation)
        self._pauser.resume(allocation)
        served = self._served.pop(allocation, None)
        self._pages.pop(allocation, None)
        if served is not None:
            served.close()
        self._let_go()
        try:
            self._turns.remove(allocation)
            await asyncio.to_thread(shutil.rmtree, directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise VirtualManagerFailed("cannot remove", directory, error) from error

    async def stop(self) -> None:
        """Stop serving all of them. Directories stay; running containers stay limited."""
        for allocation, served in self._served.items():
            self._pauser.resume(allocation)
            served.close()
        self._served.clear()
        self._pages.clear()
        self._let_go()
        await asyncio.to_thread(self._turns.stop)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._legacy is not None:
            await self._legacy.stop()

    @property
    def quiet(self) -> bool:
        """Return whether no container has launched, waited or moved memory for some seconds."""
        return not self._awake.is_set()

    async def measure_every(self, seconds: float) -> None:
        """Keep what the driver takes by itself current in all books, until cancelled."""
        while True:
            await self.measure()
            await asyncio.sleep(self._memory.interval(seconds) if self._memory else seconds)
            if self._measured and self.quiet:
                await self.measure()  # what became due in between: launches, some seconds later
                if self._measured:
                    await self._awake.wait()

    async def measure(self) -> None:
        """Measure all processes of all allocations of which something may have changed."""
        if self._memory is None:
            return
        marks = {name: served.marks() for name, served in self._served.items()}
        exited = {name: served.exited for name, served in self._served.items()}
        stale = self._staleness.stale(time.monotonic(), self._served, marks)
        self._measured = not stale
        gpus = frozenset[GpuUUID]().union(*(self._served[name].gpus for name in stale))
        if not gpus:
            return
        reading = await self._memory.read(NvmlQuery(processes=gpus))
        if reading is None:
            return  # what was known stands
        held = plain(reading.held)
        there = {
            name: version
            for name, version in stale.items()
            if name in self._served and not lacks(reading, self._served[name].gpus)
        }
        self._staleness.measured(there)
        for name in there:
            self._served[name].enter(marks[name], held, exited[name])

    async def share_every(self, seconds: float, sample_seconds: float = SAMPLE_SECONDS) -> None:
        """Compare the turns of all containers with samples periodically, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._utilization is not None:
                group.create_task(self._sample_every(sample_seconds, self._utilization))
            while True:
                answers = self._utilization.take_samples() if self._utilization else {}
                now = time.monotonic()
                found = (self._turns.looks(), len(self._pages), moves(self._pages.values()))
                # The processes of a gpu-client have no slots, and move no word.
                if found != self._moves or (self._legacy and self._legacy.registered):
                    self._moves, self._moved_at = found, now
                if self._outside.active or now - self._moved_at <= self._quiet_seconds:
                    self._awake.set()
                else:
                    self._awake.clear()
                if not self.quiet or any(one.samples for one in answers.values()):
                    self.share_now(time.monotonic_ns(), answers)
                await asyncio.sleep(QUIET_TICK_SECONDS if self.quiet else seconds)

    async def _sample_every(self, seconds: float, nvml: NvmlReader) -> None:
        """Sample the GPUs that processes share, by bare UUIDs; nothing while there is none. On a
        quiet node rarely, until it wakes."""
        while True:
            busy = (served for served in self._served.values() if served.has_processes)
            if gpus := frozenset[GpuUUID]().union(*(served.limited_gpus for served in busy)):
                await nvml.read(NvmlQuery(samples=gpus))
            await asyncio.sleep(nvml.interval(seconds))
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SAMPLE_SECONDS):
                    await self._awake.wait()

    def share_now(self, now_ns: int, answers: UtilizationByGpu) -> None:
        """Update the meters of all turns, and account for time outside of them.

        now_ns: of CLOCK_MONOTONIC, as the containers have it; never earlier than the last time.
        answers: what the driver has reported since then of how busy processes kept the GPUs.
        """
        bared = {bare(gpu): answer for gpu, answer in answers.items()}
        takers = {name: one for name, one in self._served.items() if one.count_turns()}
        outside = self._outside
        outside.look(now_ns, takers, bared)
        if self._pauses:
            self._pauser.tick(outside.overdrawn, outside.paused, self._processes)

    def _processes(self, allocation: AllocationID) -> tuple[Process, ...]:
        served = self._served.get(allocation)
        return served.processes if served else ()

    def _spread_sizes(self) -> None:
        for served in self._served.values():
            served.write_contexts()

    def usage(self, allocation: AllocationID) -> AllocationUsage:
        """Return what it uses, served or not. The processes of one that is not served are nobody's:
        its pages alone name them. Raises RegionUnreadable for an unknown one."""
        served = self._served.get(allocation)
        if served is not None:
            usage = served.usage()
            return (
                replace(usage, overdrawn=True) if allocation in self._outside.overdrawn else usage
            )
        return replace(read_usage(self.directory(allocation)), processes=())

    def limits(self, allocation: AllocationID) -> tuple[Limit, ...]:
        """Return the limits in its directory, served or not; nothing where that cannot be read."""
        try:
            with Config(self.directory(allocation), writable=False) as config:
                return config.limits()
        except GpuManagerError as error:
            log.warning("%s", error)
            return ()

    def allocations(self) -> tuple[AllocationID, ...]:
        """Return those that have a directory, served or not: also what a crash has left over."""
        try:
            found = sorted(path.name for path in self._directory.iterdir() if path.is_dir())
        except FileNotFoundError:
            return ()
        return tuple(AllocationID(name) for name in found if _NAME.fullmatch(name))

    async def remove_spares(self) -> None:
        """Remove directories that an earlier version made ahead, and what is left of the turns of
        allocations that are gone."""
        self._turns.remove_leftovers(self.allocations())
        for spare in self._directory.glob(_SPARE):
            await asyncio.to_thread(shutil.rmtree, spare, ignore_errors=True)

    def directory(self, allocation: AllocationID) -> Path:
        if not _NAME.fullmatch(allocation):
            raise GpuManagerError(f"{allocation!r} cannot name a directory of an allocation")
        return self._directory / allocation

    def _let_go(self) -> None:
        """Close what is for all allocations, where none is served."""
        if self._deaths is not None and not self._served:
            self._deaths.close()
            self._deaths = None

    def _sweep_later(self) -> None:
        if self._sweep is None and self._served:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self._sweep_seconds, self._sweep_now)

    def _sweep_now(self) -> None:
        self._sweep = None
        now = time.monotonic()
        if not self.quiet or now - self._swept_at >= QUIET_SWEEP_SECONDS:
            self._swept_at = now
            for served in list(self._served.values()):
                served.sweep()
        self._sweep_later()


def make_directory(directory: Path) -> bool:
    """Return whether it is new. Mode 0711: any user of a container opens what it can name in it;
    no user of the host lists it."""
    try:
        directory.mkdir(mode=0o711, parents=True)
    except FileExistsError:
        new = False
    else:
        new = True
    for closed in (directory.parent, directory):
        closed.chmod(0o711)
    return new
