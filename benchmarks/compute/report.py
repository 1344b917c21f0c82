"""Verdicts as text of at most 100 columns, and as values for JSON.

Pure. A figure that misses its bar has a star.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from compute.judge import Received, Verdict

NAME, DUE, GOT = 31, 11, 19
LISTED = 4
"""So many tenants are shown one by one; of more, the least and the most."""

HEADING = (
    f"{'':{NAME}} {'due':>{DUE}} {'got, %':>{GOT}} {'error, points':>13} {'deliv.':>6} {'±2 pt':>6}"
    f" {'gap p99':>7}\n"
    f"{'case':{NAME}} {'%':>{DUE}} {'':>{GOT}} {'mean':>6} {'worst':>6} {'%':>6} {'s':>6} {'ms':>7}"
)
LOSS_HEADING = HEADING.replace("gap p99", "   lost").replace("     ms", "      %")
"""Where switches between processes cost time: what they cost, instead of the gaps."""


def row(verdict: Verdict, *, loss: bool = False) -> str:
    """loss: under LOSS_HEADING."""
    due = guaranteed(list(verdict.tenants.values()))
    got = joined([one.share for one in verdict.tenants.values()], 1)
    missed = verdict.missed
    cells = (
        starred(f"{verdict.mean:.1f}", 6, star="error" in missed),
        f"{verdict.worst:+6.1f}",
        starred(f"{verdict.delivered:.1f}", 6, star="delivered" in missed),
        starred(seconds(verdict.settled), 6, star="settled" in missed),
        f"{verdict.lost:7.1f}" if loss else milliseconds(verdict.gap_ms).rjust(7),
    )
    return f"{label(verdict):{NAME}} {due:>{DUE}} {got:>{GOT}} " + " ".join(cells)


def guaranteed(tenants: Sequence[Received]) -> str:
    if all(round(one.due) == round(one.most) for one in tenants):
        return joined([one.due for one in tenants], 0)
    return "/".join(f"{one.due:.0f}-{one.most:.0f}" for one in tenants)


def label(verdict: Verdict) -> str:
    return f"{verdict.case}: {verdict.phase}" if verdict.phase else verdict.case


def starred(text: str, width: int, *, star: bool) -> str:
    return f"{text}*".rjust(width) if star else text.rjust(width)


def seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f}"


def milliseconds(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"


def joined(values: Sequence[float], digits: int) -> str:
    if len(values) > LISTED:
        low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
        return f"{len(values)} of {low}" if low == high else f"{len(values)} of {low} to {high}"
    return "/".join(f"{value:.{digits}f}" for value in values)


def spread(rounds: Sequence[Verdict]) -> str:
    """One line for several rounds of the same phase: from the least to the most."""
    figures = (
        ("error", [one.mean for one in rounds], 2),
        ("worst", [abs(one.worst) for one in rounds], 1),
        ("delivered", [one.delivered for one in rounds], 1),
    )
    parts = [f"{name} {min(v):.{digits}f} to {max(v):.{digits}f}" for name, v, digits in figures]
    return f"    {len(rounds)} rounds: " + ", ".join(parts)


def typical(rounds: Sequence[Verdict]) -> Verdict:
    """The round whose mean error is in the middle."""
    return sorted(rounds, key=lambda one: one.mean)[(len(rounds) - 1) // 2]


def summary(verdicts: Sequence[Verdict]) -> Iterator[str]:
    if not verdicts:
        return
    errors = [one.mean for one in verdicts if one.bars.error is not None]
    if errors:
        yield (
            f"mean error: {statistics.mean(errors):.2f} points over {len(errors)} rows, "
            f"{max(errors):.2f} in the worst"
        )
        worst = max(verdicts, key=lambda one: abs(one.worst))
        yield f"worst window: {worst.worst:+.1f} points, in {label(worst)}"
    least = min(verdicts, key=lambda one: one.delivered)
    yield f"least delivered: {least.delivered:.1f} % of what was due, in {label(least)}"
    unfair = min(verdicts, key=lambda one: one.fairness)
    yield f"least fair: Jain's index {unfair.fairness:.4f}, in {label(unfair)}"
    never = sum(one.settled is None and one.bars.settled is not None for one in verdicts)
    yield f"never settled: {never} of {len(verdicts)} rows"
    missed = [one for one in verdicts if one.missed]
    yield f"bars met in {len(verdicts) - len(missed)} of {len(verdicts)} rows; * misses its bar"
    yield from (f"  missed: {label(one)}: {', '.join(one.missed)}" for one in missed)


def beside(case: str, columns: Sequence[Sequence[Verdict]]) -> str:
    """One line of the comparison: what each limiter made of a case of one phase."""
    cells = []
    for (one,) in columns:
        got = joined([tenant.share for tenant in one.tenants.values()], 1)
        cells.append(f"{got:>11} {one.mean:5.1f} {one.delivered:6.1f}")
    return f"{case.removeprefix('compare/'):20} " + "  ".join(cells)


def beside_heading(limiters: Sequence[str]) -> str:
    names = "  ".join(f"{name:^24}" for name in limiters)
    units = "  ".join(f"{'got, %':>11} {'error':>5} {'deliv.':>6}" for _ in limiters)
    return f"{'':20} {names}\n{'case':20} {units}"


def values(verdict: Verdict) -> dict[str, Any]:
    """For JSON. Percent, points, seconds, milliseconds."""
    return {
        "case": verdict.case,
        "phase": verdict.phase,
        "tenants": {
            name: {
                "due": one.due,
                "due_most": one.most,
                "share": one.share,
                "error_mean": one.mean,
                "error_worst": one.worst,
                "delivered": one.delivered,
                "settled": one.settled,
            }
            for name, one in verdict.tenants.items()
        },
        "error_mean": verdict.mean,
        "error_worst": verdict.worst,
        "delivered": verdict.delivered,
        "settled": verdict.settled,
        "fairness": verdict.fairness,
        "gap_p99_ms": verdict.gap_ms,
        "lost": verdict.lost,
        "window": verdict.window,
        "grain": verdict.grain,
        "missed": list(verdict.missed),
    }
