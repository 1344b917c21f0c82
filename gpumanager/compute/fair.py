"""Who may have how much of a GPU: weighted max-min. Pure.

Everybody's promise holds, whatever the others do. What promises leave over, because they are small
or because nobody uses them, goes to those who want more, in proportion to their promises, and
nobody gets more than wanted. So all wants are filled up to one common level, a multiple of the
promise: the level at which nothing is left over.

Where the GPU yields less than the promises that are wanted now (`gpumanager.compute.capacity`), the
level is below one: all who want their promise have the same part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One container's. promise: more than 0. want: what it would use now, its ceiling at most."""

    promise: float
    want: float
    ceiling: float


def level(claims: Sequence[Claim], capacity: float = 1.0, usable: float = float("inf")) -> float:
    """How many times its promise everybody may have; infinite if all is granted.

    capacity: what may be lent. usable: what the GPU yields. At least once, unless promises that are
    wanted now are more than that.
    """
    if sum(min(claim.promise, claim.want) for claim in claims) > usable:
        return _filled(claims, usable)
    return max(1.0, _filled(claims, min(capacity, usable)))


def _filled(claims: Sequence[Claim], capacity: float) -> float:
    used, weight = 0.0, sum(claim.promise for claim in claims)
    for claim in sorted(claims, key=lambda claim: claim.want / claim.promise):
        multiple = (capacity - used) / weight
        if claim.want > multiple * claim.promise:
            return multiple
        used += claim.want
        weight -= claim.promise
    return float("inf")


def offers(
    claims: Sequence[Claim], capacity: float = 1.0, usable: float = float("inf")
) -> list[float]:
    """The share that each may have from now on.

    Who wants little now is offered what it would get if it wanted all: it may begin at any moment,
    and the others are told at the next look.
    """
    common = level(claims, capacity, usable)
    spare = min(capacity, usable) - sum(claim.want for claim in claims)
    return [
        _offer(claims, place, common, spare, capacity=capacity, usable=usable)
        for place in range(len(claims))
    ]


def _offer(
    claims: Sequence[Claim],
    place: int,
    common: float,
    spare: float,
    *,
    capacity: float,
    usable: float,
) -> float:
    claim = claims[place]
    most = max(claim.ceiling, claim.promise)
    if claim.ceiling - claim.want <= spare:  # there is room for all; the same, told sooner
        return most
    if claim.want < most:
        eager = Claim(claim.promise, most, most)
        common = level([*claims[:place], eager, *claims[place + 1 :]], capacity, usable)
    return min(most, common * claim.promise)
