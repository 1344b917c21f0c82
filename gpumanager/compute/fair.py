"""Who may have how much of a GPU: weighted max-min. Pure.

Everybody's promise holds, whatever the others do. What promises leave over, because they are small
or because nobody uses them, goes to those who want more, in proportion to their promises, and
nobody gets more than wanted. So all wants are filled up to one common level, a multiple of the
promise: the level at which nothing is left over.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One container's. promise: more than 0. want: what it would use now, its ceiling at most."""

    promise: float
    want: float
    ceiling: float


def level(claims: Sequence[Claim], capacity: float = 1.0) -> float:
    """How many times its promise everybody may have; at least once, infinite if all is granted."""
    used, weight = 0.0, sum(claim.promise for claim in claims)
    for claim in sorted(claims, key=lambda claim: claim.want / claim.promise):
        multiple = (capacity - used) / weight
        if claim.want > multiple * claim.promise:
            return max(1.0, multiple)
        used += claim.want
        weight -= claim.promise
    return float("inf")


def offers(claims: Sequence[Claim], capacity: float = 1.0) -> list[float]:
    """The share that each may have from now on.

    Who wants little now is offered what it would get if it wanted all: it may begin at any moment,
    and the others are told at the next look.
    """
    common = level(claims, capacity)
    spare = capacity - sum(claim.want for claim in claims)
    return [_offer(claims, place, common, capacity, spare) for place in range(len(claims))]


def _offer(
    claims: Sequence[Claim], place: int, common: float, capacity: float, spare: float
) -> float:
    claim = claims[place]
    if claim.ceiling <= claim.promise:
        return claim.promise
    if claim.ceiling - claim.want <= spare:  # there is room for all; the same, told sooner
        return claim.ceiling
    if claim.want < claim.ceiling:
        eager = Claim(claim.promise, claim.ceiling, claim.ceiling)
        common = level([*claims[:place], eager, *claims[place + 1 :]], capacity)
    return min(claim.ceiling, max(1.0, common) * claim.promise)
