"""What is known of a container's GPU time: what its meter said, what was measured, where they met.

Values of `gpumanager.compute.correction`, which says what follows from them. All amounts and times
are ns; times are of CLOCK_MONOTONIC.
"""

import math
from dataclasses import dataclass
from typing import Final

FORGETTING_NS: Final = 4_000_000_000
"""Of what was seen, a third is remembered after as long."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A meter at a moment. charged: GPU time paid for; retired: that part of it of work that is
    known to have ended; launches: how many were paid for. unpaid: one that is under way is of
    unknown cost and will be paid for when it has ended."""

    at: int
    charged: int
    retired: int
    launches: int = 0
    unpaid: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """GPU time a container was measured to have had between two moments; if not `whole`, at least:
    drivers do not tell of processes that have ended, nor of those that they do not know by the
    number that we do. parts: percentages summed, each rounded."""

    since: int
    until: int
    busy: int
    whole: bool = True
    parts: int = 1

    @property
    def percent(self) -> float:
        return 100 * self.busy / (self.until - self.since)


@dataclass(frozen=True, slots=True)
class Variation:
    """Mean and spread of the samples of the last seconds, in percent."""

    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, sample: Sample) -> "Variation":
        keep = math.exp(-(sample.until - sample.since) / FORGETTING_NS)
        percent = sample.percent
        return Variation(
            self.weight * keep + 1, self.total * keep + percent, self.squares * keep + percent**2
        )

    @property
    def deviation(self) -> float:
        if self.weight == 0:
            return 0.0
        mean = self.total / self.weight
        return math.sqrt(max(0.0, self.squares / self.weight - mean**2))


@dataclass(frozen=True, slots=True)
class Contact:
    """When the measured last touched a bound, and where both stood, give or take `slack`."""

    at: int
    measured: int
    charged: int
    slack: int = 0


@dataclass(frozen=True, slots=True)
class Lesson:
    """Between the contacts of the last seconds: GPU time measured, and charged before scaling."""

    work: float = 0.0
    plain: float = 0.0


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of one container on one GPU.

    measured: GPU time, in step with what the meter had charged when we began. corrected: what our
    corrections have added to the meter. lost: charged for work of which nobody will say that it has
    ended. began: when it had its first launch, or we our first look. scale: what charges are to be
    multiplied by. advanced: of the corrections, what was charged for a launch that was not paid for
    yet, and advanced_from: what was charged then.
    """

    readings: tuple[Reading, ...] = ()
    measured: int | None = None
    corrected: int = 0
    lost: int = 0
    scale: float = 1.0
    began: int = 0
    contact: Contact | None = None
    variation: Variation = Variation()
    lesson: Lesson = Lesson()
    advanced: int = 0
    advanced_from: int = 0
