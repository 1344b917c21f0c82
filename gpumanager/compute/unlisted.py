"""GPU time that no living process had: what processes took that have ended.

A driver tells for how much of a period anybody used the GPU, and of every process that lives how
much it used; of one that has ended it tells no more. What is left over, those took who have left.
They are found among the containers of which a process ended just then, and are charged what these
have not paid: so nobody gets GPU time for nothing by leaving before it is measured.

Pure: ns of CLOCK_MONOTONIC, and percents.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpumanager.compute.periods import LONGEST_NS
from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import GpuUtilization, ProcessSample

DOUBT: Final = 0.02
"""Of the time: two roundings, and what the sum of processes may fall short of the whole."""

LEAST_NS: Final = SECOND // 20
"""Not charged before it has come to so much: answers and meters are not read at one moment."""

CREDIT_NS: Final = SECOND
"""What was paid and not seen used is counted up to this."""


class Unlisted:
    """Of one GPU."""

    def __init__(self) -> None:
        self._asked: int | None = None
        self._ended: int | None = None
        self._listed: dict[int, int] = {}

    def enter(self, answer: GpuUtilization, longest: int) -> tuple[int, int]:
        """Since the last answer: the time, and how much of it somebody used who is not listed.

        longest: no period of this driver is longer.
        """
        span = min(answer.asked_ns - self._asked, LONGEST_NS) if self._asked is not None else 0
        self._asked = answer.asked_ns
        self._note(answer.samples or (), answer.asked_ns - longest * 9 // 8)
        if answer.busy is None or answer.samples is None:
            return 0, 0
        return span, span * max(0, answer.busy - sum(self._listed.values())) // 100

    def percent(self, pids: Iterable[int]) -> int:
        """Percent of the last period that these processes had."""
        return sum(self._listed.get(pid, 0) for pid in pids)

    def _note(self, samples: tuple[ProcessSample, ...], oldest: int) -> None:
        """Who had what of the last period that ended."""
        newest = max((sample.ended_ns for sample in samples), default=self._ended)
        if newest is not None and newest != self._ended:
            self._listed = {one.pid: one.percent for one in samples if one.ended_ns == newest}
        self._ended = newest
        if newest is None or newest < oldest:  # in a later one nobody was listed
            self._listed = {}


@dataclass(slots=True)
class Leavers:
    """What processes that have ended took of a GPU and did not pay.

    balance: of that, not charged yet; below 0 what was paid and is not seen taken.
    """

    balance: float = 0.0

    def enter(self, span: int, taken: int, paid: int) -> int:
        """In so much time. Returns what is to be charged now."""
        balance = self.balance + taken - paid
        self.balance = max(-CREDIT_NS, balance - DOUBT * span if balance > 0 else balance)
        if self.balance < LEAST_NS:
            return 0
        debt, self.balance = round(self.balance), 0.0
        return debt
