"""Run the checks of one stage one after another: each in its bound, all of them in the stage's.

What goes wrong in a check is that check's failure, with its traceback in the figures; the others
are run all the same. What a check found is written before the next one begins. A check that looked
at nothing, for whatever reason, is lost and says so.
"""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_check.bench import Bench, patient
from gpu_check.outcome import Absent, Finding, Lost, Outcome, Verdict
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


async def conduct(bench: Bench, stage: str, checks: Sequence[Check]) -> list[Outcome]:
    outcomes = []
    for check in checks:
        begun = time.monotonic()
        findings = await _findings(bench, check)
        if not findings:
            findings = [Finding(Verdict.LOST, "the check found nothing to say")]
        outcome = Outcome(check.name, tuple(findings), time.monotonic() - begun)
        bench.results.outcome(stage, outcome)
        outcomes.append(outcome)
    return outcomes


async def _findings(bench: Bench, check: Check) -> list[Finding]:
    """What was found, the trouble it ended with included."""
    findings: list[Finding] = []
    bound = seconds = patient(check.seconds)
    try:
        await bench.require(check.needs)
        if bench.left < LEAST_PART * bound:
            return [Finding(Verdict.LOST, "no time is left for it")]
        seconds = min(bound, bench.left)
        async with asyncio.timeout(seconds):
            async for finding in check.run(bench):
                findings.append(finding)  # noqa: PERF401 - those before the trouble count
    except TimeoutError:
        findings.append(Finding(Verdict.LOST, f"not finished within {seconds:.3g} s"))
    except GpuManagerError as error:
        findings.append(Finding(_verdict(error), " ".join(str(error).split())))
    except Exception as error:  # noqa: BLE001 - a run on a GPU is too dear to end here
        figures = {"traceback": traceback.format_exc()}
        findings.append(Finding(Verdict.FAIL, f"the check itself failed: {error!r}", figures))
    return findings


def _verdict(error: GpuManagerError) -> Verdict:
    match error:
        case Lost():
            return Verdict.LOST
        case Absent():
            return Verdict.ABSENT
        case _:
            return Verdict.FAIL
