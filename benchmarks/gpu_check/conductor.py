"""Run the checks of one stage one after another: each in its bound, all of them in the stage's.

What goes wrong in a check is that check's failure, with its traceback in the figures; the others
are run all the same. What a check found is written before the next one begins.
"""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_check.bench import Bench, patient
from gpu_check.outcome import Finding, Outcome, Verdict
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


async def conduct(bench: Bench, stage: str, checks: Sequence[Check]) -> list[Outcome]:
    outcomes = []
    for check in checks:
        begun = time.monotonic()
        findings = await _findings(bench, check)
        outcome = Outcome(check.name, tuple(findings), time.monotonic() - begun)
        bench.results.outcome(stage, outcome)
        outcomes.append(outcome)
    return outcomes


async def _findings(bench: Bench, check: Check) -> list[Finding]:
    """What was found, the trouble it ended with included."""
    findings: list[Finding] = []
    bound = seconds = patient(check.seconds)
    try:
        if (lacking := await _lacking(bench, check)) is not None:
            return [Finding(Verdict.SKIP, lacking)]
        if bench.left < LEAST_PART * bound:
            return [Finding(Verdict.SKIP, "no time is left for it")]
        seconds = min(bound, bench.left)
        async with asyncio.timeout(seconds):
            async for finding in check.run(bench):
                findings.append(finding)  # noqa: PERF401 - those before the trouble count
    except TimeoutError:
        findings.append(_cut_off(bound, seconds))
    except GpuManagerError as error:
        findings.append(Finding(Verdict.FAIL, " ".join(str(error).split())))
    except Exception as error:  # noqa: BLE001 - a run on a GPU is too dear to end here
        figures = {"traceback": traceback.format_exc()}
        findings.append(Finding(Verdict.FAIL, f"the check itself failed: {error!r}", figures))
    return findings


async def _lacking(bench: Bench, check: Check) -> str | None:
    """Why a check cannot be run here; None if it can."""
    if not check.needs:
        return None
    place = await bench.place()
    lacking = [module for module in check.needs if not place.has(module)]
    if lacking:
        return f"{bench.python} has no {' and no '.join(lacking)}"
    return await bench.torch_imported() if "torch" in check.needs else None


def _cut_off(bound: float, seconds: float) -> Finding:
    """A failure where it had all of its time."""
    if seconds < bound:
        return Finding(Verdict.SKIP, "no time was left to finish it")
    return Finding(Verdict.FAIL, f"not finished within {seconds:.3g} s")
