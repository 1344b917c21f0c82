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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import READ_SECONDS, NvmlReader, NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, lacks
from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.allocation import HttpSockets, Means, ServedAllocation
from gpumanager.limits.outside import OutsideUse
from gpumanager.limits.overhead import plain
from gpumanager.limits.pages.books import moves, read_usage
from gpumanager.limits.pages.config import Config
from gpumanager.limits.pausing import Freezer, Pauser
from gpumanager.limits.processes import POLL_SECONDS, Process
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


class VirtualManagerFailed(GpuManagerError):
    """The file system refuses what the virtual manager needs."""

    def __init__(self, doing: str, path: Path, error: OSError) -> None:
        super().__init__(f"{doing} {path}: {error.strerror or error}")


class VirtualManager:
    """Serves allocations under `root`, in the loop of its first open(), until stop().

    nvml: tells what each process holds, and how busy each keeps the GPUs; None: nobody does, and
    time outside of turns is not seen. turns: by which containers share the time of GPUs.
    owners: knows whose processes use a GPU; None: not known. peers,
    legacy, deadline_seconds, poll_seconds: as in Means. sweep_seconds: between two looks for
    programs that have gone without a word. quiet_seconds: without a move of any container until
    the node is quiet. read_seconds: for NVML to answer. pauses: whether containers that go past
    their turns are paused, and freezer: by what, and what an earlier manager froze is thawed; None
    where none can be.
    """

    def __init__(
        self,
        root: Path = DEFAULT_ROOT,
        *,
        turns: Turns,
        nvml: NvmlService | None = None,
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
        self._moves: tuple[int, ...] = ()
        self._moved_at = 0.0
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
        self._means = Means(
            turns,
            Descriptors.allowed(),
            self._memory,
            peers,
            legacy,
            deadline_seconds,
            poll_seconds,
        )
        self._pauses = pauses
        self._pauser = Pauser(self.directory, freezer) if freezer else None
        self._served: dict[AllocationID, ServedAllocation] = {}
        self._turns = turns
        self._outside = OutsideUse(turns, owners)

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        """Serve this allocation, now with these limits; safe to repeat.

        Creates or reuses its directory, writes the configuration, listens on the socket. Running
        processes see a change of limits at once. Returns the host directory to mount at /etc/vcuda.
        """
        directory = self.directory(allocation)
        served = self._served.get(allocation)
        if served is not None:
            served.write(limits)
            return directory
        try:
            new = make_directory(directory)
            try:
                self._served[allocation] = ServedAllocation(
                    directory, allocation, limits, self._means
                )
            except BaseException:
                if new:
                    shutil.rmtree(directory, ignore_errors=True)
                raise
            self._resume(allocation)  # a manager before us paused it
        except OSError as error:
            raise VirtualManagerFailed("cannot serve", directory, error) from error
        self._sweep_later()
        return directory

    def turns(self, allocation: AllocationID) -> Path | None:
        """Return the folder to mount at /etc/vcuda/turns; None for one that takes no turns."""
        served = self._served.get(allocation)
        if served is None or served.joined is None:
            return None
        place = self.directory(allocation) / CONTAINER_TURNS.name
        try:
            place.mkdir(exist_ok=True)
            # With a user namespace, runc reads it as an unprivileged user of the host.
            place.chmod(0o755)
        except OSError as error:
            raise VirtualManagerFailed("cannot make", place, error) from error
        return self._turns.folder(allocation)

    def link_driver(self, allocation: AllocationID, driver: Path) -> Path:
        """Return a link in its directory that leads to this driver from now on.

        Which driver may depend on the pod, which Allocate does not know. The runtime follows the
        link when it creates the container, after PreStartContainer.
        """
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
        self._resume(allocation)
        served = self._served.pop(allocation, None)
        if served is not None:
            served.close()
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
            self._resume(allocation)
            served.close()
        self._served.clear()
        await asyncio.to_thread(self._turns.stop)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._means.legacy is not None:
            await self._means.legacy.stop()

    @property
    def quiet(self) -> bool:
        """Return whether no container has launched, waited or moved memory for some seconds."""
        return not self._awake.is_set()

    async def measure_every(self, seconds: float) -> None:
        """Keep what the driver takes by itself current in all books, until cancelled."""
        settled = False  # whether a pass on the quiet node found nothing to measure
        while True:
            quiet = self.quiet
            if not (quiet and settled):
                settled = await self.measure() and quiet
            await asyncio.sleep(self._memory.interval(seconds) if self._memory else seconds)

    async def measure(self) -> bool:
        """Measure all processes of all allocations of which something may have changed. Return
        whether there were none."""
        if self._memory is None:
            return True
        snapshots = {served: served.snapshot() for served in self._served.values()}
        stale = {one: before for one, before in snapshots.items() if one.is_stale(before)}
        if not stale:
            return True
        gpus = frozenset[GpuUUID]().union(*(served.gpus for served in stale))
        reading = await self._memory.read(NvmlQuery(processes=gpus))
        if reading is None:
            return False  # what was known stands
        held = plain(reading.held)
        for served, before in stale.items():
            there = self._served.get(served.allocation) is served
            if there and not lacks(reading, served.gpus):
                served.enter(before, held)
        return False

    async def share_every(self, seconds: float, sample_seconds: float = SAMPLE_SECONDS) -> None:
        """Compare the turns of all containers with samples periodically, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._utilization is not None:
                group.create_task(self._sample_every(sample_seconds, self._utilization))
            while True:
                answers = self._utilization.take_samples() if self._utilization else {}
                now = time.monotonic()
                pages = [one.books.words for one in self._served.values()]
                found, legacy = (self._turns.looks(), len(pages), moves(pages)), self._means.legacy
                # The processes of a gpu-client have no slots, and move no word.
                if found != self._moves or (legacy and legacy.registered):
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
            busy = (served for served in self._served.values() if served.processes)
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
        takers = {name: one for name, one in self._served.items() if one.write_meters()}
        outside = self._outside
        outside.look(now_ns, takers, bared)
        if self._pauses and self._pauser:
            self._pauser.tick(outside.overdrawn, outside.paused, self._processes)

    def _resume(self, allocation: AllocationID) -> None:
        if self._pauser:
            self._pauser.resume(allocation)

    def _processes(self, allocation: AllocationID) -> tuple[Process, ...]:
        served = self._served.get(allocation)
        return served.processes if served else ()

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

    def remove_leftovers(self) -> None:
        """Remove what is left of the turns of allocations that are gone."""
        self._turns.remove_leftovers(self.allocations())

    def directory(self, allocation: AllocationID) -> Path:
        if not _NAME.fullmatch(allocation):
            raise GpuManagerError(f"{allocation!r} cannot name a directory of an allocation")
        return self._directory / allocation

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
