"""Run the checks of one stage one after another: each in its bound, all of them in the stage's.

What goes wrong in a check is that check's failure, with its traceback in the figures; the others
are run all the same. What a check finds is written as it comes. A check that looked at nothing, for
whatever reason, is lost and says so.
"""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_check.bench import Bench, patient
from gpu_check.outcome import Absent, Finding, Lost, Verdict
from gpumanager.errors import GpuManagerError

LEAST_PART: Final = 0.25
"""Of its bound: a check is not begun with less time than that; most end far within it."""


@dataclass(frozen=True, slots=True)
class Check:
    """seconds: its bound. needs: what the workloads' Python must be able to import."""

    name: str
    seconds: float
    run: Callable[[Bench], AsyncIterator[Finding]]
    needs: tuple[str, ...] = ()

    @property
    def by_torch(self) -> bool:
        return "torch" in self.needs


async def conduct(bench: Bench, stage: str, checks: Sequence[Check]) -> None:
    """Run them in order. A file names the unfinished ones: the runner reports them as lost if this
    process ends early.
    """
    for number, check in enumerate(checks):
        bench.plan([one.name for one in checks[number:]])
        begun, count = time.monotonic(), 0
        async for finding in _findings(bench, check):
            bench.results.finding(stage, check.name, finding, time.monotonic() - begun)
            count += 1
        if count == 0:
            nothing = Finding(Verdict.LOST, "the check found nothing to say")
            bench.results.finding(stage, check.name, nothing, 0.0)
    bench.plan([])


async def _findings(bench: Bench, check: Check) -> AsyncIterator[Finding]:
    """What was found, the trouble it ended with included."""
    bound = seconds = patient(check.seconds)
    try:
        await bench.require(check.needs)
        if bench.left < LEAST_PART * bound:
            yield Finding(Verdict.LOST, "no time is left for it")
            return
        seconds = min(bound, bench.left)
        async with asyncio.timeout(seconds):
            async for finding in check.run(bench):
                yield finding
    except TimeoutError:
        yield Finding(Verdict.LOST, f"not finished within {seconds:.3g} s")
    except GpuManagerError as error:
        yield Finding(_verdict(error), " ".join(str(error).split()))
    except Exception as error:  # noqa: BLE001 - a run on a GPU is too dear to end here
        figures = {"traceback": traceback.format_exc()}
        yield Finding(Verdict.FAIL, f"the check itself failed: {error!r}", figures)


def _verdict(error: GpuManagerError) -> Verdict:
    match error:
        case Lost():
            return Verdict.LOST
        case Absent():
            return Verdict.ABSENT
        case _:
            return Verdict.FAIL
