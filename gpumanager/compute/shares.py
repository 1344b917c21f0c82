"""The shares of all GPUs, decided anew at each tick from the readings of the meters.

Pure state: no clock, no driver, no shared memory. A restart loses the factors for costs and a
moment's histories; until they are learnt again every container has its guarantee.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumanager.compute.audit import UNKNOWN_FORGOTTEN_NS, Audit, UnknownProcesses
from gpumanager.compute.capacity import LEAST, Alternation, Capacity
from gpumanager.compute.fair import Claim, offers
from gpumanager.compute.long_launches import LongLaunches
from gpumanager.compute.member import LATELY_NS, SharedGpuMember
from gpumanager.compute.occupancy_timeline import SLICE_NS
from gpumanager.compute.overdraft import Overdraft
from gpumanager.compute.values import MILLION, SECOND, Holder, Reading, ShareLease
from gpumanager.gpu.usage.samples import GpuUtilization, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID

UNPAID_NS: Final = 10 * SECOND
"""After a container was found to take what it does not pay for."""

IDLE_PERCENT: Final = 80
"""A GPU that anybody used for less of the time starves nobody, whatever a meter says: a container
could have its neighbours' guarantees lowered by it."""

IDLE_NS: Final = 2 * SECOND
"""After it was seen to be idle, if it is not seen again."""

KNOWN: Final = MILLION - 1
"""The most that others are said to have: a million is that nobody knows."""


STILL_NS: Final = 4 * SECOND
"""For how long nothing must have changed. Nothing that is remembered for longer changes by time."""

RENEWED_NS: Final = SECOND // 2
"""Between two renewals: a third of a lease."""


@dataclass(slots=True)
class IdleSkip:
    """When to leave a GPU alone: all its meters have stood for long, and nobody is seen on it.

    A look at such a GPU finds what the last one found and grants what it granted, so that it need
    not be taken: what was granted is only renewed. A change of any meter ends that at that very
    look. Of the looks that were passed over, the last is taken first: then all is as if none had
    been. With 256 idle containers that saves 4 ms of the processor in each tenth of a second.

    readings: of the last look; still_since: when they last differed from those before; going:
    whether a launch is known to be under way. standing: what to renew; None of a GPU that is awake.
    skipped: the last look that was passed over, None if none was; answer: the last that came then.
    """

    readings: Sequence[Reading] = ()
    still_since: int = 0
    going: bool = False
    standing: Mapping[Holder, ShareLease] | None = None
    renewed_at: int = 0
    skipped: int | None = None
    answer: GpuUtilization | None = None

    def goes_on(self, now: int, readings: Sequence[Reading], answer: GpuUtilization | None) -> bool:
        """Whether this look may be passed over."""
        if readings != self.readings:
            flights = (flight for reading in readings for flight in reading.flights)
            self.going = any(not flight.ended for flight in flights)
            self.readings, self.still_since = readings, now
        silent = answer is None or not (answer.samples or answer.busy)
        still = now - self.still_since > STILL_NS and not self.going
        if self.standing is None or not still or not silent:
            return False
        self.skipped, self.answer = now, answer or self.answer
        return True

    def renewed(self, now: int) -> dict[Holder, ShareLease]:
        """What was granted, again, if it is time."""
        if self.standing is None or now - self.renewed_at < RENEWED_NS:
            return {}
        self.renewed_at = now
        return dict(self.standing)

    def worked(self, now: int, grants: Mapping[Holder, ShareLease] | None) -> None:
        """A look was taken. grants: what may be renewed; None where it may be another next time."""
        self.skipped, self.answer = None, None
        self.renewed_at = now
        self.standing = None
        if grants is not None:
            paid = {holder: replace(grant, debt_ns=0) for holder, grant in grants.items()}
            self.standing = paid


class SharedGpu:
    """One GPU, and the containers on it."""

    def __init__(self, *, switching: float = 0.0) -> None:
        self._idle = IdleSkip()
        self._members: dict[Holder, SharedGpuMember] = {}
        self._long_launches = LongLaunches(switching)
        self._capacity = Capacity(lendable=1 - switching)
        self._alternation = Alternation(SLICE_NS * switching / (1 - switching))
        self._audit = Audit()
        self._unpaid_until = self._idle_until = 0
        self._unknown_processes = UnknownProcesses()
        self._unknown_share = 0.0
        self._unknown_count = 0
        self._unknown_until = 0
        self.lenders: frozenset[Holder] = frozenset()
        """Containers that use less than guaranteed while others use more, and may want it back."""

    def tick(
        self, now: int, readings: Sequence[Reading], answer: GpuUtilization | None
    ) -> dict[Holder, ShareLease]:
        """The grants of those that have a limit; none where all stay as they are."""
        skipped, before = self._idle.skipped, self._idle.readings
        if self._idle.goes_on(now, readings, answer):
            return self._idle.renewed(now)
        if skipped is not None:  # up to then, as if each look had been taken
            self._work(skipped, before, self._idle.answer)
        grants = self._work(now, readings, answer)
        members = self._members.values()  # a paused one moves nothing, and waits for a tick
        tired = not self._unknown_share and all(
            m.resting and not m.overdraft.paused for m in members
        )
        self._idle.worked(now, grants if tired else None)
        return grants

    def _work(
        self, now: int, readings: Sequence[Reading], answer: GpuUtilization | None
    ) -> dict[Holder, ShareLease]:
        self._look(now, [reading for reading in readings if reading.limited])
        if answer is not None:
            self._learn(now, answer)
        if now > self._unknown_until:
            self._unknown_share, self._unknown_count = 0.0, 0
        return self._grants(now)

    def _look(self, now: int, readings: Sequence[Reading]) -> None:
        known = self._members
        self._members = {
            reading.holder: known.get(reading.holder) or SharedGpuMember(reading, now)
            for reading in readings
        }
        for reading in readings:
            self._members[reading.holder].look(now, reading)
        if any(member.overdraft.gross for member in self._members.values()):
            self._unpaid_until = now + UNPAID_NS
        # else meters do not show all that the GPU yields
        paid = now >= max(self._unpaid_until, self._idle_until)
        starved = [who for who, one in self._members.items() if paid and one.history.starved]
        lacking = [one for one in self._members.values() if paid and one.history.lacking]
        self._capacity.lend(
            now - self._capacity.at,
            lacking=bool(lacking),
            short=any(one.is_short for one in lacking),
            alone=self._alone,
        )
        self._capacity.update(now, readings, starved)
        self._alternation.update(now, readings, lacking=bool(lacking))
        charged = [member.charged_reading() for member in self._members.values()]
        for holder, errors in self._long_launches.update(now, charged).items():
            self._members[holder].adjust(errors)

    def _learn(self, now: int, answer: GpuUtilization) -> None:
        if answer.busy is not None:
            self._idle_until = now + IDLE_NS if answer.busy < IDLE_PERCENT else 0
        listed = frozenset(one.pid for one in answer.samples or () if one.percent > 0)
        for member in self._members.values():
            member.note_listed(now, listed)
        self._estimate_unknown(now, answer)
        self._collect(now, answer)

    def _known_pids(self) -> frozenset[int]:
        return frozenset[int]().union(*(member.seen for member in self._members.values()))

    def _of_unlisted(self) -> float:
        """What is taken by containers that the driver may list under other process numbers."""
        return sum(member.took() for member in self._members.values() if not member.listed)

    def _collect(self, now: int, answer: GpuUtilization) -> None:
        """What containers took that they paid much too little for."""
        payers = [member.payer(now) for member in self._members.values()]
        for holder, debt in self._audit.enter(answer, payers).items():
            self._members[holder].owe(now, LATELY_NS, debt)
            self._unpaid_until = now + UNPAID_NS

    def _estimate_unknown(self, now: int, answer: GpuUtilization) -> None:
        """What processes take that belong to no container."""
        unknown = self._unknown_processes.enter(answer, self._known_pids())
        self._unknown_share = max(0.0, unknown - self._of_unlisted())
        self._unknown_count = self._unknown_processes.count if self._unknown_share else 0
        self._unknown_until = now + UNKNOWN_FORGOTTEN_NS

    @property
    def collected(self) -> Mapping[Holder, int]:
        return self._audit.collected

    @property
    def overdrafts(self) -> Mapping[Holder, Overdraft]:
        """The limiter's account of each container, kept out of its reach."""
        return {who: one.overdraft for who, one in self._members.items()}

    def moved(self, reading: Reading) -> bool:
        """Whether a meter has, since it was looked at."""
        member = self._members.get(reading.holder)
        return member is not None and reading.charged_ns != member.reading.charged_ns

    def _note_lenders(self, claims: Sequence[Claim], shares: Sequence[float]) -> None:
        pairs = zip(claims, shares, strict=True)
        lent = any(min(claim.want, share) > claim.guarantee for claim, share in pairs)
        holders = zip(self._members, claims, strict=True) if lent else ()
        self.lenders = frozenset(who for who, claim in holders if claim.want < claim.guarantee)

    def _grants(self, now: int) -> dict[Holder, ShareLease]:
        members = self._members.values()
        claims = [member.claim() for member in members]
        shares = offers(claims, *self._to_offer(claims))
        self._note_lenders(claims, shares)
        took = [max(one.took(), self._audit.seen(who)) for who, one in self._members.items()]
        total = sum(took) + self._unknown_share
        working = sum(member.processes for member in members) + self._unknown_count
        guarantees = (claim.guarantee for claim in claims)
        may_take = sum(map(max, took, guarantees)) + self._unknown_share
        return {
            member.reading.holder: ShareLease(
                rate_ppm=member.lend(now, share),
                others_ppm=min(_ppm(total - own if own > 0 else may_take - claim.guarantee), KNOWN),
                neighbours=working - member.processes,
                debt_ns=member.debt,
                debt_ppm=_ppm(member.debt_rate),
                long_ppm=round(self._long_launches.ratio(member.reading.holder) * MILLION),
            )
            for member, share, own, claim in zip(members, shares, took, claims, strict=True)
        }

    def _to_offer(self, claims: Sequence[Claim]) -> tuple[float, float]:
        """Up to which is lent, and what guarantees can have. A container alone loses nothing by
        switching."""
        if self._alone:
            return 1.0, 1.0
        yields = self._alternation.yields(dict(zip(self._members, claims, strict=True)))
        usable = min(self._capacity.part, yields if yields < LEAST else 1.0)
        return min(1 - self._unknown_share, self._capacity.lendable), usable

    @property
    def _alone(self) -> bool:
        """Whether no two work, so that nothing is lost by switching."""
        working = sum(member.demand.want > 0 for member in self._members.values())
        return working < 2 and not self._unknown_share  # noqa: PLR2004 - two


def _ppm(share: float) -> int:
    return round(min(1.0, max(0.0, share)) * MILLION)


class Shares:
    """Of a node. switching: the part of a GPU's time that is lost while slices go round."""

    def __init__(self, *, switching: float = 0.0) -> None:
        self._switching = switching
        self._gpus: dict[GpuUUID, SharedGpu] = {}
        self._readings: list[Reading] = []
        self._by_gpu: Mapping[GpuUUID, list[Reading]] = {}

    @property
    def lenders(self) -> frozenset[Holder]:
        """The containers that `poll` has to read before the next tick."""
        return frozenset[Holder]().union(*(shared.lenders for shared in self._gpus.values()))

    @property
    def collected(self) -> Mapping[Holder, int]:
        """ns of GPU time that containers took and had not paid, as far as it was noticed."""
        return {who: ns for shared in self._gpus.values() for who, ns in shared.collected.items()}

    @property
    def overdrafts(self) -> Mapping[Holder, Overdraft]:
        """As of each GPU."""
        gpus = self._gpus.values()
        return {who: one for shared in gpus for who, one in shared.overdrafts.items()}

    def active(self, readings: Iterable[Reading]) -> frozenset[GpuUUID]:
        """The GPUs that lenders have begun to use, as these readings of theirs tell."""
        return frozenset(
            one.gpu for one in readings if one.gpu in self._gpus and self._gpus[one.gpu].moved(one)
        )

    def tick(
        self, now: int, readings: Iterable[Reading], answers: UtilizationByGpu
    ) -> dict[Holder, ShareLease]:
        """What each container may have until the next look; times must not run backwards.

        answers: those that have come since the last look, by the UUIDs that the readings use.
        """
        readings = list(readings)
        if readings != self._readings:  # most are the same objects as before, which is seen at once
            self._readings, self._by_gpu = readings, _by_gpu(readings)
            self._gpus = {
                gpu: self._gpus.get(gpu) or SharedGpu(switching=self._switching)
                for gpu in self._by_gpu
            }
        return self._tick(now, self._by_gpu, answers)

    def poll(self, now: int, readings: Iterable[Reading]) -> dict[Holder, ShareLease]:
        """A look at no more than the GPUs of these readings: all that there are of each."""
        return self._tick(now, _by_gpu(readings), {})

    def _tick(
        self, now: int, by_gpu: Mapping[GpuUUID, Sequence[Reading]], answers: UtilizationByGpu
    ) -> dict[Holder, ShareLease]:
        grants: dict[Holder, ShareLease] = {}
        for gpu, own in by_gpu.items():
            grants |= self._gpus[gpu].tick(now, own, answers.get(gpu))
        return grants


def _by_gpu(readings: Iterable[Reading]) -> Mapping[GpuUUID, list[Reading]]:
    by_gpu: defaultdict[GpuUUID, list[Reading]] = defaultdict(list)
    for reading in readings:
        by_gpu[reading.gpu].append(reading)
    return by_gpu
