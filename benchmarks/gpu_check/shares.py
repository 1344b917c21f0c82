"""From work done to shares of the GPU's time.

Work is counted in kernels of so many rounds each, and measured against what the GPU does of them
without the shim, kept busy. A GPU that has less to do may run at a higher clock. So work is counted
per clock cycle where the clock is known, and per second where it is not.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_check.bench import patience
from gpu_check.outcome import Finding, Verdict

BAR_POINTS: Final = 1.0
BAR_DELIVERED: Final = 98.0
WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class Rate:
    """kernels per second, and the SM clock meanwhile in MHz; 0 where it is not known."""

    kernels: float
    clock: float = 0.0

    def __post_init__(self) -> None:
        if self.kernels <= 0:
            raise ValueError("nothing was done: no rate")

    def over(self, other: "Rate") -> float:
        """Percent of another one, both per clock cycle where both clocks are known."""
        if self.clock and other.clock:
            return 100 * (self.kernels / self.clock) / (other.kernels / other.clock)
        return 100 * self.kernels / other.kernels


@dataclass(frozen=True, slots=True)
class Share:
    """What one tenant was guaranteed and got; percent of the GPU's time."""

    guaranteed: float
    got: float

    @property
    def error(self) -> float:
        """In points; positive: more than guaranteed."""
        return self.got - self.guaranteed

    @property
    def delivered(self) -> float:
        """Percent of the guarantee."""
        return 100 * self.got / self.guaranteed


def share(guaranteed: float, limited: Rate, full: Rate) -> Share:
    """full: the GPU kept busy with these kernels, without the shim."""
    return Share(guaranteed, limited.over(full))


def middle(rates: Sequence[Rate]) -> Rate:
    """Of the same measured several times, each figure's median."""
    return Rate(
        statistics.median(rate.kernels for rate in rates),
        statistics.median(rate.clock for rate in rates),
    )


def finding(about: str, shares: Sequence[Share], *, together: bool = False) -> Finding:
    """One row: several shares of the same kind, one after another or at the same time.

    Tenants that were guaranteed all of a GPU between them cannot all get it: switches between their
    contexts take time that no tenant gets. Their shares are figures.
    """
    errors = [abs(one.error) for one in shares]
    mean, least = statistics.mean(errors), min(one.delivered for one in shares)
    slowness = patience()
    met = mean <= BAR_POINTS * slowness and 100 - least <= (100 - BAR_DELIVERED) * slowness
    said = "  ".join(f"{one.guaranteed:g}: {one.got:.1f}" for one in shares)
    figures = {
        "promised": [one.guaranteed for one in shares],
        "got": [one.got for one in shares],
        "mean_error": mean,
        "worst_error": max(errors),
        "least_delivered": least,
    }
    text = f"{said}; error mean {mean:.2f}, most {max(errors):.2f} points, {least:.1f} % delivered"
    if together and sum(one.guaranteed for one in shares) >= WHOLE:
        return Finding(Verdict.FIGURE, text, figures, about)
    return Finding(Verdict.PASS if met else Verdict.FAIL, text, figures, about)


def slowdown(with_shim: Sequence[float], without: Sequence[float]) -> tuple[float, float, float]:
    """Percent by which work takes longer with the shim, of pairs taken in turns: the median, and
    the middle half. More than four pairs make the latter mean something.
    """
    if len(with_shim) != len(without) or not with_shim:
        raise ValueError("pairs are needed")
    percent = [100 * (bare / ours - 1) for ours, bare in zip(with_shim, without, strict=True)]
    return (statistics.median(percent), *spread(percent))


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The middle half of them."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
