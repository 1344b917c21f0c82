"""What a tenant's GPU time over time is worth, in figures.

Pure. `busy` is the GPU time that a tenant received in each interval of a run, in seconds, as the
simulated GPU's own account has it; shares, errors and tolerances are in percent of the GPU's time,
so a difference of shares is in points. Windows slide by one interval at a time.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

GRAINS = 50
"""How many times a window must be longer than what cannot be cut in two."""


def window(unit: float, least: float = 1.0, grains: int = GRAINS) -> float:
    """How long to look for a share, if GPU time comes in pieces of `unit` seconds.

    One piece more or less moves the share by unit/window; half of it is expected of any window
    that begins anywhere. With 50 pieces to a window that is one point, the bar for the error.
    """
    return max(least, grains * unit)


def grain(unit: float, width: float) -> float:
    """Points by which a window of that width can miss by where it begins: half a piece."""
    return 100 * unit / (2 * width)


def steps(seconds: float, interval: float) -> int:
    """Whole intervals in a time; one at least."""
    return max(1, round(seconds / interval))


def shares(busy: Sequence[float], interval: float, width: float) -> list[float]:
    """The share in each window of that width; in all of it, if it is shorter than one."""
    count = min(steps(width, interval), len(busy))
    if count == 0:
        return []
    sums = [0.0, *accumulate(busy)]
    pairs = zip(sums, sums[count:], strict=False)
    return [100 * (after - before) / (count * interval) for before, after in pairs]


def share(busy: Sequence[float], interval: float) -> float:
    return 100 * math.fsum(busy) / (len(busy) * interval)


def beyond(got: float, least: float, most: float) -> float:
    """Points outside of that range; negative: below it."""
    return got - most if got > most else min(got - least, 0.0)


def errors(
    busy: Sequence[float], interval: float, width: float, due: float, most: float | None = None
) -> list[float]:
    """In points, of each window; positive: more than was due. most: due is a range up to that."""
    most = due if most is None else most
    return [beyond(got, due, most) for got in shares(busy, interval, width)]


def mean_error(found: Sequence[float]) -> float:
    return math.fsum(map(abs, found)) / len(found)


def worst_error(found: Sequence[float]) -> float:
    """The largest, with its sign."""
    return max(found, key=abs)


def delivered(got: float, due: float) -> float:
    """Percent of what was due; all of it, if nothing was."""
    return 100 * got / due if due > 0 else 100.0


def settled(found: Sequence[float], interval: float, within: float, held: float) -> float | None:
    """Seconds until the error stays within so many points for `held` seconds; None: never.

    `found`: the errors of windows from the step on. What happens later is the worst error's affair.
    """
    needed = min(steps(held, interval), len(found))
    good = 0
    for index, error in enumerate(found):
        good = good + 1 if abs(error) <= within else 0
        if good == needed:
            return (index + 1 - needed) * interval
    return None


def jain(ratios: Sequence[float]) -> float:
    """Jain's index of fairness: 1 if all are alike, 1/n if one has everything."""
    squares = math.fsum(ratio * ratio for ratio in ratios)
    return math.fsum(ratios) ** 2 / (len(ratios) * squares) if squares else 1.0


def most_beyond(busy: Sequence[float], interval: float, width: float, percent: float) -> float:
    """Seconds of GPU time by which the richest window exceeds that share; negative: none does."""
    got = max(shares(busy, interval, width))
    return (got - percent) / 100 * min(width, len(busy) * interval)
