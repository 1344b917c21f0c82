"""Until when somebody outside of turns counts as using a GPU.

A process is foreign while NVML samples show that it used the GPU and no container that takes turns
has it: a display server, a container with a shim that has not heard of turns, a program that goes
past its shim. A process that is listed without time is nobody.

Pure: ns of CLOCK_MONOTONIC.
"""

from collections.abc import Collection, Iterable
from typing import Final

from gpumanager.compute.values import SECOND
from gpumanager.gpu.usage.samples import ProcessSample

LEAST_PERCENT: Final = 1

LATELY_NS: Final = SECOND * 3 // 2
"""A second, and the time to the next question: sample periods last a second at most."""


def foreign(samples: Iterable[ProcessSample], now: int, inside: Collection[int]) -> dict[int, int]:
    """Pids outside of turns that used the GPU lately → when they count no longer. inside: the pids
    of the containers that take turns."""
    ends: dict[int, int] = {}
    for one in samples:
        until = one.ended_ns + LATELY_NS
        if one.percent >= LEAST_PERCENT and one.pid not in inside and until > now:
            ends[one.pid] = max(until, ends.get(one.pid, 0))
    return ends
