"""What the decisions about GPU time take and give. Times are ns of CLOCK_MONOTONIC.

A `Reading` is what the pages of one container say of one GPU at one moment, a `Grant` what is
written back. Shares are parts of one GPU's time: 0.3 is 30 percent.
"""

from dataclasses import dataclass
from typing import Final

from gpumanager.gpu.values import GpuUUID

SECOND: Final = 1_000_000_000
MILLION: Final = 1_000_000

Holder = tuple[str, int]
"""A container on one of its GPUs: the name of its allocation, and the place of the GPU in it."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A launch longer than the GPU's time slices, as the process saw it that made it.

    ticket: another for each of a container. slot: of the process. ended: 0 if that is not known;
    then begun is when it was launched, else when it can have begun behind those before it. cost:
    ns by what events say. charged: ns; 0 if it was short after all.
    """

    ticket: int
    slot: int
    begun: int
    ended: int
    cost: int
    charged: int


@dataclass(frozen=True, slots=True)
class Reading:
    """guarantee, ceiling: shares; a guarantee of 1 or more is a container without limit.

    pids: of the host. paid_until: how far the limiter's clock stands. charged_ns, retired_ns: GPU
    time charged, and that part of it of work that is known to have ended. waits: ns that launches
    were made to wait, all threads together, and one for each of them. launches: that were paid for.
    unpaid: one is under way whose cost is not known before it ends. awaited_ns: for how long its
    threads have waited for the end of work. departed: how many of its processes have ended so far.
    burst_ns: unused time that may be saved up: how far the limiter's clock may lag behind.
    flights: the last long launches, those included that have not ended; long_ns: what of charged_ns
    was for such.
    """

    holder: Holder
    gpu: GpuUUID
    guarantee: float
    ceiling: float
    pids: frozenset[int]
    paid_until: int
    charged_ns: int
    retired_ns: int
    waits: int
    launches: int = 0
    unpaid: bool = False
    awaited_ns: int = 0
    departed: int = 0
    flights: tuple[Flight, ...] = ()
    long_ns: int = 0
    burst_ns: int = 20 * MILLION

    @property
    def limited(self) -> bool:
        return 0 < self.guarantee < 1


@dataclass(frozen=True, slots=True)
class ShareLease:
    """In millionths: GPU time per time that may be charged now, what others took lately, and
    long_ppm: what the costs of long launches that the limiter learns are to be multiplied by.

    neighbours: how many processes those others are, at most. debt_ns: GPU time to charge once,
    because it was taken and not paid for; below 0 to give back. debt_ppm: the rate at which it
    should have been paid then, and is to be paid now: a container that was lent much then, and less
    now, is not owed what was lent. 0: rate_ppm.
    """

    rate_ppm: int
    others_ppm: int
    neighbours: int
    debt_ns: int = 0
    debt_ppm: int = 0
    long_ppm: int = MILLION
