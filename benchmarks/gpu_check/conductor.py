"""Run the checks one after another: each in its bound, all of them in theirs.

What goes wrong in a check is that check's failure and one line; the others are run all the same.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from gpu_check.checks import Check
from gpu_check.outcome import Finding, Outcome, Verdict
from gpu_check.place import Place
from gpumanager.errors import GpuManagerError

WHOLE_SECONDS: Final = 470.0
"""Of the eight minutes that all may take; the rest is for the start and the report."""

LEAST_PART: Final = 0.25
"""Of its bound: a check is not begun with less time than that, most end far within it."""


async def conduct(
    place: Place,
    checks: Sequence[Check],
    on_outcome: Callable[[Outcome], None],
    *,
    deadline: float,
) -> list[Outcome]:
    """deadline: of time.monotonic()."""
    outcomes = []
    for check in checks:
        begun = time.monotonic()
        findings = await _findings(place, check, deadline - begun)
        outcome = Outcome(check.name, tuple(findings), time.monotonic() - begun)
        on_outcome(outcome)
        outcomes.append(outcome)
    return outcomes


async def _findings(place: Place, check: Check, left: float) -> list[Finding]:
    lacking = [module for module in check.needs if not place.has(module)]
    if lacking:
        return [Finding(Verdict.SKIP, f"{place.machine.python} has no {' and no '.join(lacking)}")]
    if left < LEAST_PART * check.seconds:
        return [Finding(Verdict.SKIP, "no time is left for it")]
    return await _run(place, check, min(check.seconds, left))


async def _run(place: Place, check: Check, seconds: float) -> list[Finding]:
    """What was found, the trouble it ended with included."""
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(seconds):
            async for finding in check.run(place):
                findings.append(finding)  # noqa: PERF401 - those before the trouble count
    except TimeoutError:
        findings.append(_cut_off(check, seconds))
    except GpuManagerError as error:
        findings.append(Finding(Verdict.FAIL, " ".join(str(error).split())))
    except (OSError, KeyError, ValueError, TypeError) as error:
        findings.append(Finding(Verdict.FAIL, f"no sense in its answer: {error!r}"))
    return findings


def _cut_off(check: Check, seconds: float) -> Finding:
    """A failure where it had all of its time."""
    if seconds < check.seconds:
        return Finding(Verdict.SKIP, "no time was left to finish it")
    return Finding(Verdict.FAIL, f"not finished within {seconds:.3g} s")
