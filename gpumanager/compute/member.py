"""One container on one GPU: what its meter and the driver's samples tell of it, look by look.

It knows nothing of the others on the GPU: what concerns them, it is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.audit import Payer
from gpumanager.compute.demand import Demand
from gpumanager.compute.fair import Claim
from gpumanager.compute.history import Rates, UsageHistory, UsageMark
from gpumanager.compute.long_launches import ChargedReading, ChargeError
from gpumanager.compute.overdraft import Overdraft
from gpumanager.compute.values import MILLION, SECOND, Reading

LATELY_NS: Final = SECOND // 2
"""Span of "what others took". A container that took nothing itself is given what they may begin to
take: all may begin at once, and its first measurement must not count their time as its own."""

LEFT_NS: Final = SECOND
"""What a process took that has ended, samples show within this time."""

REMEMBERED_NS: Final = 5 * SECOND
"""Processes that have ended are known for so long, where a sample may be as old."""

SHORT_NS: Final = SECOND // 5
SHORT: Final = 0.99
"""Of a guarantee; less, for so long, is not enough."""

RESTS_NS: Final = 4 * SECOND
"""A meter that has stood for so long: its container wants nothing and needs no correction."""


@dataclass(slots=True)
class SharedGpuMember:
    """One container on one GPU, and what is known of it.

    debt: what it turned out to owe at this look, and debt_rate: the rate while it was taken; owed:
    all of that until now. moved: when its meter did so last. seen: when each of its processes was
    known last. departed: when one was last found to have ended; 0 if none was. listed: the driver
    has told of a process of it. It never lists one that it knows by another number: then it must
    not be believed that the container used nothing.
    """

    reading: Reading
    moved: int
    seen: dict[int, int] = field(default_factory=dict)
    departed: int = 0
    history: UsageHistory = field(default_factory=UsageHistory)
    rates: Rates = field(default_factory=Rates)
    demand: Demand = field(default_factory=Demand)
    resting: bool = False
    debt: int = 0
    debt_rate: float = 0.0
    owed: int = 0
    listed: bool = False
    overdraft: Overdraft = field(init=False)

    def __post_init__(self) -> None:
        self.overdraft = Overdraft(self.moved, self.reading.charged_ns)

    def look(self, now: int, reading: Reading) -> None:
        if (reading.charged_ns, reading.waits) != (self.reading.charged_ns, self.reading.waits):
            self.moved = now
        if reading.departed != self.reading.departed:
            self.departed = now
        self.seen |= dict.fromkeys(reading.pids, now)
        granted = self.rates.mean(self.overdraft.at, now)
        rate = max(granted, reading.guarantee)  # it may have had its guarantee while it was away
        # what was lent is owed as of then, when it was due at another rate
        owed = self.debt * (min(1.0, rate / self.debt_rate) if self.debt_rate > 0 else 1.0)
        own = reading.charged_ns - self.owed
        self.overdraft.look(now, own, rate, reading.burst_ns, owed)
        self.reading, self.debt = reading, 0
        self.resting = now - max(self.moved, reading.paid_until) > RESTS_NS
        mark = UsageMark(
            now,
            reading.charged_ns - self.owed,
            reading.waits,
            reading.awaited_ns,
            behind=now - reading.paid_until - reading.burst_ns,
            going=reading.charged_ns > reading.retired_ns,
            long=any(not flight.ended for flight in reading.flights),
            ahead=reading.paid_until > now,
        )
        if self.resting:  # most containers, most of the time: little is kept of those
            self.history.rest(mark)
            return
        self.history.enter(mark)
        self.demand.update(now, reading, self.history)

    def claim(self) -> Claim:
        reading = self.reading
        return Claim(reading.guarantee, self.demand.want, max(reading.ceiling, reading.guarantee))

    def lend(self, now: int, share: float) -> int:
        """From now on it may have this share; in millionths."""
        self.rates.enter(now, share)
        return max(1, round(share * MILLION))

    def took(self) -> float:
        """The share of the GPU that it took lately, or takes now if that is more."""
        if self.resting:
            return 0.0
        return max(self.history.share(LATELY_NS), self.history.newest)

    @property
    def is_short(self) -> bool:
        """Whether it had less than its guarantee lately."""
        return self.history.share(SHORT_NS) < self.reading.guarantee * SHORT

    @property
    def processes(self) -> int:
        """How many may have work on the GPU."""
        return 0 if self.resting else len(self.reading.pids)

    def note_listed(self, now: int, pids: frozenset[int]) -> None:
        """Processes that samples name; of others they tell nothing, neither that they did nothing.

        A sample may name one that has ended meanwhile.
        """
        self.listed = self.listed or not pids.isdisjoint(self.seen)
        self.seen = {pid: seen for pid, seen in self.seen.items() if seen > now - REMEMBERED_NS}

    def owe(self, now: int, span: int, debt: int) -> None:
        """It took so much and did not pay; below 0: it gets so much back."""
        self.debt_rate = self.rates.mean(now - span, now)
        self.debt += debt
        self.owed += debt

    def payer(self, now: int) -> Payer:
        reading = self.reading
        return Payer(
            reading.holder,
            frozenset(self.seen),
            reading.charged_ns,
            max(0, reading.charged_ns - reading.retired_ns),
            unpaid=reading.unpaid,
            left=self.departed > now - LEFT_NS,
            listed=self.listed,
        )

    def charged_reading(self) -> ChargedReading:
        return ChargedReading(self.reading, self.owed)

    def adjust(self, errors: Sequence[ChargeError]) -> None:
        """Long launches were there with those of others."""
        for error in errors:
            self.debt += error.amount
            self.owed += error.amount
        if errors:
            self.debt_rate = self.rates.mean(errors[0].begun, errors[-1].ended)
