"""What a run was worth: each phase of a case against its bars.

Pure. What is due to a tenant is its guarantee, or less if its launches cannot fill that much even
with the whole GPU to themselves (`able`: the least and most percent it got alone, without a
limiter). Where that was not the same each time, what is due is a range: the error bar of the row.

On the real clock a program that waits for each launch is woken by the host before the next, and the
GPU is not its own meanwhile (`woken`). Where neighbours work in just those moments nothing is lost;
where they never do, it has that part of what they leave it which it has of the whole GPU alone. The
host decides which, not the limiter: from that to the guarantee is the range.

Where switches between processes cost GPU time, that is the GPU's loss and no tenant's: if what the
tenants are guaranteed, and can take, is more than is left, to each is due its guarantee times what
is left / the sum. Example: 30 and 70 guaranteed, 10 % lost: 27 and 63 are due.
A container alone on the GPU pays for switches between its own processes: of 40 guaranteed, when 2 %
are lost, 38 are due.
What is due beyond guarantees, to those who may burst, gives way first: of 40 and 60, when 30 and 60
are guaranteed and 5 % lost, 35 and 60 are due.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from compute import metrics
from compute.cases import Actor, Bars, Case, Phase

Able = tuple[float, float]

HELD = 1.0
"""Seconds that a share must stay near what is due to count as settled."""


@dataclass(frozen=True, slots=True)
class Received:
    """What one tenant got in one phase: shares in percent, errors in points, settled in seconds.

    due, most: what was due, at least and at most. Errors are counted from that range.
    """

    due: float
    most: float
    share: float
    mean: float
    worst: float
    settled: float | None

    @property
    def delivered(self) -> float:
        return metrics.delivered(self.share, self.due)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One phase. window: seconds; grain: points by which a window misses by where it begins.

    lost: percent of the GPU's time that went into switches between processes.
    """

    case: str
    phase: str
    tenants: Mapping[str, Received]
    gap_ms: float
    window: float
    grain: float
    bars: Bars
    lost: float = 0.0

    @property
    def mean(self) -> float:
        return math.fsum(one.mean for one in self.tenants.values()) / len(self.tenants)

    @property
    def worst(self) -> float:
        return max((one.worst for one in self.tenants.values()), key=abs)

    @property
    def delivered(self) -> float:
        """Of the tenant that got the least of what was due to it."""
        return min(one.delivered for one in self.tenants.values())

    @property
    def settled(self) -> float | None:
        times = [one.settled for one in self.tenants.values()]
        return None if None in times else max(time for time in times if time is not None)

    @property
    def fairness(self) -> float:
        return metrics.jain([one.delivered for one in self.tenants.values()])

    @property
    def missed(self) -> tuple[str, ...]:
        """The bars that are not met, by name. A bar counts to the digit that is shown."""
        bars = self.bars
        late = math.inf if self.settled is None else self.settled
        checks = (
            ("error", bars.error is not None and round(self.mean, 1) > bars.error),
            ("delivered", bars.delivered is not None and round(self.delivered, 1) < bars.delivered),
            ("settled", bars.settled is not None and round(late, 2) > bars.settled),
        )
        return tuple(name for name, failed in checks if failed)


def judge(
    case: Case,
    busy: Mapping[str, Sequence[float]],
    reports: Mapping[str, Mapping[str, float]],
    able: Mapping[str, Able],
    woken: Collection[str] = (),
    *,
    lost: Sequence[float] = (),
) -> list[Verdict]:
    """One verdict for each phase. reports: what each tenant's workload printed of itself.

    lost: GPU seconds of each interval that went into switches; empty: none did. woken: the
    tenants that the host wakes after each launch.
    """
    borrow = {one.name for one in case.actors if one.ceiling is not None}
    return [
        judge_phase(case, phase, busy, reports, beside(phase, able, woken, borrow), lost=lost)
        for phase in case.phases
    ]


def beside(
    phase: Phase, able: Mapping[str, Able], woken: Collection[str], borrow: Collection[str]
) -> dict[str, Able]:
    """What each tenant of the phase can take beside the others, at least and at most.

    borrow: tenants that may have what is guaranteed to nobody.
    """
    found = {name: able[name] for name in phase.due}
    for name in found.keys() & set(woken):
        others = phase.due.keys() - {name}
        left = 100 - math.fsum(min(phase.due[one], able[one][1]) for one in others)
        if others & set(borrow):
            left = min(left, phase.due[name])
        found[name] = (able[name][0] * left / 100, 100.0)
    return found


def judge_phase(
    case: Case,
    phase: Phase,
    busy: Mapping[str, Sequence[float]],
    reports: Mapping[str, Mapping[str, float]],
    able: Mapping[str, Able],
    *,
    lost: Sequence[float],
) -> Verdict:
    guarantees = {
        one.name: guarantee(one, phase.due[one.name])
        for one in case.actors
        if one.name in phase.due
    }
    steady = part(lost, case.interval, phase)[round(phase.bars.skip / case.interval) :]
    gone = metrics.share(steady, case.interval) if steady else 0.0
    tenants = {
        name: received(part(busy[name], case.interval, phase), case, phase.bars, due, able[name])
        for name, due in scaled(own_switches_paid(phase.due, gone), guarantees, able, gone).items()
    }
    gap = max(float(reports[name].get("gap_p99_us", 0)) for name in phase.due) / 1000
    width = min(case.window, phase.end - phase.begin - phase.bars.skip)
    grain = metrics.grain(case.unit, width)
    return Verdict(case.name, phase.name, tenants, gap, width, grain, phase.bars, gone)


def own_switches_paid(due: Mapping[str, float], lost: float) -> Mapping[str, float]:
    return {name: share - lost for name, share in due.items()} if len(due) == 1 else due


def guarantee(actor: Actor, due: float) -> float:
    """Of what is due to it now; guarantees that change are as large as what is due."""
    return due if actor.ceiling is None else min(due, actor.cores)


def scaled(
    due: Mapping[str, float],
    guarantees: Mapping[str, float],
    able: Mapping[str, Able],
    lost: float,
) -> Mapping[str, float]:
    """What is due of what is left: in percent, as `lost` is."""
    wanted = {name: min(share, able[name][1]) for name, share in due.items()}
    lent = math.fsum(max(0.0, wanted[name] - guarantees[name]) for name in due)
    missing = max(0.0, math.fsum(wanted.values()) - (100 - lost))
    kept = 1 - min(1.0, missing / lent) if lent else 1.0
    dues = {
        name: min(due[name], guarantees[name]) + kept * max(0.0, due[name] - guarantees[name])
        for name in due
    }
    left = math.fsum(min(share, able[name][1]) for name, share in dues.items())
    scale = min(1.0, (100 - lost) / left)
    return {name: share * scale for name, share in dues.items()}


def part(busy: Sequence[float], interval: float, phase: Phase) -> Sequence[float]:
    return busy[round(phase.begin / interval) : round(phase.end / interval)]


def received(
    busy: Sequence[float], case: Case, bars: Bars, guaranteed: float, able: Able
) -> Received:
    """busy: of the phase alone. The skipped beginning counts for settling only."""
    due, most = (min(guaranteed, one) for one in able)
    steady = busy[round(bars.skip / case.interval) :]
    found = metrics.errors(steady, case.interval, case.window, due, most)
    begun = metrics.errors(busy, case.interval, bars.width, due, most)
    if bars.least:
        begun = [min(error, 0.0) for error in begun]
    return Received(
        due,
        most,
        metrics.share(steady, case.interval),
        metrics.mean_error(found),
        metrics.worst_error(found),
        metrics.settled(begun, case.interval, bars.tolerance, HELD),
    )
