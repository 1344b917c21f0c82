"""A good linked set among more GPUs than can be searched exactly.

From every kind of GPU (twins start alike, so one of them starts) a set grows by the GPU that adds
the most quality, then by the one that adds no NUMA node, then by the lowest. The grown sets are
compared by the full objective. On uniform links this finds the optimum; elsewhere it may miss it.
"""

from itertools import islice
from typing import Final

from gpumanager.placement.candidates import Candidates

MOST_STARTS: Final = 32
"""Keeps the work within starts times set size times GPUs, however large the machine."""


def good_set(candidates: Candidates, size: int) -> tuple[int, ...]:
    """The members of the best set that was reached, ascending; there are at least `size`."""
    starts = (member for member, twin in enumerate(candidates.twin) if twin is None)
    grown = {_grow(candidates, start, size) for start in islice(starts, MOST_STARTS)}
    return min(grown, key=candidates.rank)


def _grow(candidates: Candidates, start: int, size: int) -> tuple[int, ...]:
    members, nodes = [start], candidates.numa[start]
    gain = dict(enumerate(candidates.quality[start]))
    del gain[start]
    while len(members) < size:
        grown = max(
            gain, key=lambda other: (gain[other], bool(candidates.numa[other] & nodes), -other)
        )
        members.append(grown)
        nodes |= candidates.numa[grown]
        del gain[grown]
        for other in gain:
            gain[other] += candidates.quality[grown][other]
    return tuple(sorted(members))
