"""The one sampler: reads journal and books once a period, however many ask. While nobody asks and
no container does anything it looks as often as the auditor, and reads no books.

The driver is asked only when somebody needs it (`polling`), in a thread; journal and books are read
in the loop, which owns them, with a breath for others in between.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import NvmlReader
from gpumanager.gpu.usage.nvml_pass import GpuStatus, NvmlQuery, NvmlReading
from gpumanager.gpu.values import GpuUUID, Topology, bare
from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID
from gpumanager.limits.processes import Process, find
from gpumanager.limits.values import AllocationUsage
from gpumanager.monitor.look import (
    Busy,
    Charged,
    MeterTotals,
    charged,
    container_view,
    gpu_views,
    latest,
    same,
)
from gpumanager.monitor.polling import AUDIT_SECONDS, STATUS_LASTS_SECONDS, Polling
from gpumanager.monitor.ports import Sources
from gpumanager.monitor.snapshot import ContainerSnapshot, Snapshot
from gpumanager.monitor.unlimited.residents import by_holder, residents, slots_by_process
from gpumanager.units import Bytes

log = logging.getLogger(__name__)

STATES: Final = ("answered", "settled", "released")
BREATH: Final = 16
"""Books read before others in the loop get their turn."""


class Sampler:
    """Keeps the newest snapshot, and what the next needs of it. sources: where it looks.

    unsure: whether the auditor waits for another look.
    """

    def __init__(
        self,
        sources: Sources,
        nvml: NvmlReader,
        clock: Callable[[], float] = time.monotonic,
        *,
        period: float = 1.0,
        unsure: Callable[[], bool] = lambda: False,
    ) -> None:
        self.sources = sources
        self._nvml = nvml
        self._clock = clock
        self._polling = Polling(period, nvml.interval, unsure)
        self._looking = asyncio.Lock()
        self._answered = True
        self._status: tuple[float, Mapping[GpuUUID, GpuStatus]] = (0.0, {})
        self._held: dict[GpuUUID, Mapping[int, Bytes | None]] = {}
        self._listed: dict[int, Process] = {}
        """The processes of `_held`: one that ended may have left its pid to another."""
        self._busy = Busy()
        self._charged: tuple[tuple[float, Charged], ...] = ()
        """At the last look, and at the one before."""
        self._usages_before: Mapping[AllocationID, AllocationUsage] = {}
        self._known: Mapping[AllocationID, ContainerSnapshot] = {}
        self._topology: Topology | None = None
        self._basis: tuple[object, ...] = ()
        """Of the last snapshot, beside the books and what NVML lists."""
        self._complained = False
        self.snapshot: Snapshot | None = None

    async def sample_every(
        self,
        seconds: float,
        then: Callable[[Snapshot], Awaitable[None]],
        read: Callable[[], bool],
    ) -> None:
        """Sample until cancelled. then: what is done with each. read: whether somebody reads it."""
        while True:
            began = self._clock()
            try:
                await self.turn(then, read=read())
            except Exception:
                if not self._complained:
                    log.exception("sampling this node failed; the previous sample stays")
                self._complained = True
            else:
                self._complained = False
            await asyncio.sleep(max(0.0, began + seconds - self._clock()))

    async def turn(self, then: Callable[[Snapshot], Awaitable[None]], *, read: bool) -> None:
        """Sample in turn, and ask the driver what is due."""
        async with self._looking:
            now = self._clock()
            quiet = not read and self.sources.quiet() and not self._polling.unsure()
            if quiet and self.snapshot is not None and now - self.snapshot.at < AUDIT_SECONDS:
                self._charged = tuple((now, paid) for _, paid in self._charged)  # as much as before
                return
            gpus = self._gpus()
            question = self._polling.for_reader(now, *gpus) if read else None
            question = question or self._polling.for_auditor(now, *gpus)
            await then(await self.sample(question))

    async def refresh(self, then: Callable[[Snapshot], Awaitable[None]]) -> None:
        """Sample for a reader now; do nothing where the last answer is new enough, and the grants
        are the same."""
        async with self._looking:
            if self.snapshot is None:
                return
            question = self._polling.for_reader(self._clock(), *self._gpus())
            known = [one for one, _ in self.snapshot.live]
            if question is not None or known != list(self.sources.journal().live()):
                await then(await self.sample(question, between=True))

    async def sample(self, question: NvmlQuery | None, *, between: bool = False) -> Snapshot:
        """Take a snapshot. question: to NVML; None: what it answered before stands.

        between: not in its turn. Shares are then of the time since the look before the last, which
        is a period ago.
        """
        told = question is not None and self._keep(question, await self._nvml.read(question))
        journal, now = self.sources.journal(), self._clock()
        told_at, status = self._status
        status = status if now - told_at < STATUS_LASTS_SECONDS else {}
        sources = self.sources
        known = (sources.topology(), sources.fitness(), sources.registered())
        basis = (journal, status, *known)
        if self.snapshot and not told and basis == self._basis and sources.quiet():
            if not between:
                self._charged = tuple((now, paid) for _, paid in self._charged)  # as much as before
            asked, answered = question is not None, self._answered
            self.snapshot = replace(self.snapshot, at=now, asked=asked, answered=answered)
            return self.snapshot
        self._basis = basis
        live = journal.live()
        usages = await self._usages(live)
        now = self._clock()
        present = tuple(
            residents(
                sources.topology().gpus,
                self._held,
                slots_by_process(usages),
                live,
                users=sources.users,
                find=self._alive,
                of=sources.residents.of,
            )
        )
        paid_at, paid = next(iter(self._charged[-1:] if between else self._charged), (now, {}))
        indexed = {one.allocation: one for one in usages}
        before = self._usages_before
        meters = MeterTotals(
            indexed, by_holder(present), self._busy, paid, now - paid_at, before, status
        )
        self._usages_before = indexed
        if not between:
            self._charged = ((now, charged(usages)), *self._charged[:1])
        views = await self._views(live, meters)
        journal = sources.journal()
        states = Counter(
            "released" if one.released else one.state.value for one in journal.grants.values()
        )
        self.snapshot = Snapshot(
            at=now,
            node=sources.node,
            answered=self._answered,
            topology=sources.topology(),
            live=tuple((one, sources.users(one)) for one in live),
            gpus=tuple(gpu_views(sources.ledger(), live, meters.status, sources.fitness())),
            containers=views,
            residents=present,
            journal={state: states[state] for state in STATES},
            journal_bytes=sources.journal_bytes(),
            registered=sources.registered(),
            mismatched=sources.mismatched(),
            disagreements=sources.disagreements(),
            slice_writes=sources.slice_writes(),
            released=sources.released(),
            asked=question is not None,
        )
        return self.snapshot

    def _gpus(self) -> tuple[frozenset[GpuUUID], frozenset[GpuUUID]]:
        """Return those that containers share, and all others, by their bare UUIDs."""
        live = self.sources.journal().live()
        shared = frozenset(
            bare(gpu)
            for one in live
            for gpu, share in one.shares.items()
            if share.cores and not share.exclusive
        )
        return shared, frozenset(bare(one.uuid) for one in self.sources.topology().gpus) - shared

    def _keep(self, question: NvmlQuery, reading: NvmlReading | None) -> bool:
        """Keep what was answered, and return whether it is news; where the driver is silent,
        nothing is known any more."""
        self._answered = reading is not None
        if reading is None:
            self._status, self._held, self._listed = (0.0, {}), {}, {}
            return True
        now = self._clock()
        if reading.status is not None:
            self._status = (now, reading.status)
        if question.samples:
            self._busy = self._busy.after(self._nvml.take_samples(), round(now * 1e9))
        told = {bare(gpu): pids for gpu, pids in reading.held.items()}
        if reading.complete:  # a GPU that does not answer is lost: nothing is on it
            told = {gpu: told.get(gpu, {}) for gpu in (*told, *(reading.query.processes or ()))}
        if reading.status is None and all(self._held.get(gpu) == told[gpu] for gpu in told):
            return False
        self._held |= told
        pids = {pid for held in told.values() for pid in held}
        kept = {pid for held in self._held.values() for pid in held} - pids
        self._listed = {pid: one for pid, one in self._listed.items() if pid in kept}
        self._listed |= {pid: one for pid in pids if (one := find(pid)) is not None}
        return True

    def _alive(self, pid: int) -> Process | None:
        """Return the process that was listed, while it lives."""
        listed = self._listed.get(pid)
        return listed if listed is not None and find(pid) == listed else None

    async def _views(
        self, live: Iterable[Grant], meters: MeterTotals
    ) -> tuple[ContainerSnapshot, ...]:
        """Return what is shown of each; those that did nothing look as they did."""
        topology = self.sources.topology()
        known = self._known if topology is self._topology else {}
        found: dict[AllocationID, ContainerSnapshot] = {}
        for number, one in enumerate(live):
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            view, users = known.get(one.id), self.sources.users(one)
            if view is None or not same(view, one, meters, users):
                view = container_view(topology, one, meters, users)
            if view is not None:
                found[one.id] = view
        self._known, self._topology = found, topology
        return latest(found.values())

    async def _usages(self, live: Iterable[Grant]) -> tuple[AllocationUsage, ...]:
        """Read the books. Those that cannot be read now count as before: no counter falls back.

        Where they were never read the container is shown without.
        """
        found: list[AllocationUsage] = []
        for number, one in enumerate(live):
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            try:
                usage = self.sources.books.usage(one)
            except (GpuManagerError, OSError):
                usage = self._usages_before.get(one.id)
            if usage is not None:
                found.append(usage)
        return tuple(found)
