"""Shares of one GPU by weighted max-min fairness. Pure.

Every guarantee holds, whatever the others do. What guarantees leave over, because they are small
or unused, goes to the containers that want more, in proportion to their guarantees, and none gets
more than it wants. So all wants are filled up to one common level, a multiple of the guarantee: the
level at which nothing is left over.

Where the GPU yields less than the guarantees that are wanted now (`gpumanager.compute.capacity`),
the level is below one: all that want their guarantee have the same part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One container's. guarantee: more than 0. want: what it would use now, its ceiling at most."""

    guarantee: float
    want: float
    ceiling: float


def level(claims: Sequence[Claim], capacity: float = 1.0, usable: float = float("inf")) -> float:
    """How many times its guarantee everybody may have; infinite if all is granted.

    capacity: what may be lent. usable: what the GPU yields. At least once, unless the
    guarantees that are wanted now are more than that.
    """
    if sum(min(claim.guarantee, claim.want) for claim in claims) > usable:
        return _filled(claims, usable)
    return max(1.0, _filled(claims, min(capacity, usable)))


def _filled(claims: Sequence[Claim], capacity: float) -> float:
    used, weight = 0.0, sum(claim.guarantee for claim in claims)
    for claim in sorted(claims, key=lambda claim: claim.want / claim.guarantee):
        multiple = (capacity - used) / weight
        if claim.want > multiple * claim.guarantee:
            return multiple
        used += claim.want
        weight -= claim.guarantee
    return float("inf")


def offers(
    claims: Sequence[Claim], capacity: float = 1.0, usable: float = float("inf")
) -> list[float]:
    """The share that each may have from now on.

    A container that wants little now is offered what it would get if it wanted all: it may begin at
    any moment, and the others get less from the next tick on.
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
    most = max(claim.ceiling, claim.guarantee)
    if claim.ceiling - claim.want <= spare:  # there is room for all; the same, told sooner
        return most
    if claim.want < most:
        eager = Claim(claim.guarantee, most, most)
        common = level([*claims[:place], eager, *claims[place + 1 :]], capacity, usable)
    return min(most, common * claim.guarantee)
