"""Runs cases on a stage: a simulated GPU, real processes behind the real shim, either clock.

What a tenant can take at all is found out by running it alone, on the whole GPU, without a limiter.
Once for each way to launch; but on the real clock, where a program that waits for each launch gets
what this machine's processor lets it have at that moment, before and after each run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from harness import HarnessResult, play

from compute import metrics
from compute.cases import Actor, Case
from compute.judge import Able, Verdict, judge
from gpumanager.sim.machine import DEFAULT_BEHAVIOUR, DriverBehaviour

Clock = Literal["virtual", "real"]
Limiter = Literal["shim", "none"] | Path
WARM = 1.0
"""Seconds at the start of a run alone that do not count."""

AMPLE = 95.0
"""Percent; who takes that much alone is held back by nothing but the GPU."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a case. verdicts: one for each phase."""

    case: Case
    limiter: str
    played: HarnessResult
    verdicts: tuple[Verdict, ...]


@dataclass(slots=True)
class Runner:
    """clock: of the cases. driver: of the GPU. _able: what actors can take; found once."""

    clock: Clock = "virtual"
    driver: DriverBehaviour = DEFAULT_BEHAVIOUR
    _able: dict[tuple[str, int], float] = field(default_factory=dict)

    async def run(self, case: Case, limiter: Limiter = "shim") -> Ran:
        before = {one.name: await self.able(one, case.window) for one in case.actors}
        played = await play(
            case.tenants(),
            case.seconds,
            clock=self.clock,
            interval=case.interval,
            driver=self.driver,
            limiter=limiter,
        )
        after = {one.name: await self.able(one, case.window) for one in case.actors}
        woken = [one.name for one in case.actors if one.waits and self.clock == "real"]
        able = ranges(before, after)
        verdicts = tuple(judge(case, played.busy, played.reports, able, woken, lost=played.lost))
        name = limiter.stem if isinstance(limiter, Path) else limiter
        return Ran(case, name, played, verdicts)

    async def able(self, actor: Actor, width: float) -> float:
        """Percent of the GPU that it takes when nothing holds it back."""
        key = (actor.text, actor.processes)
        if key not in self._able or (self.clock == "real" and self._able[key] < AMPLE):
            self._able[key] = await self._alone(actor, width)
        return self._able[key]

    async def _alone(self, actor: Actor, width: float) -> float:
        seconds = WARM + width
        free = replace(actor, cores=100, begin=0.0, end=None, ceiling=None, changes=())
        played = await play(
            [free.tenant(seconds)], seconds, clock=self.clock, driver=self.driver, limiter="none"
        )
        return metrics.share(
            played.busy[actor.name][round(WARM / played.interval) :], played.interval
        )


def ranges(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Able]:
    return {name: (min(one, after[name]), max(one, after[name])) for name, one in before.items()}
