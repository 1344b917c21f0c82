"""Which pods usually come, learnt from those that the API server tells of.

Pods with GPUs are counted by kind. Of pods without, which are many and of many kinds, only that
matters which they take from the others: their part of the CPU of nodes with GPUs. A new mix makes
every score that is kept stale, so one is made seldom, and taken only if it differs from the one in
use: a cluster that keeps its habits keeps its scores. How many pods leave is learnt beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from gpumanager.placement.cluster import Ask, History, Mix
from gpumanager.placement.turnover import DIFFERENT, Turnover
from gpumanager.placement.usable import part_of_gpus
from gpumanager.scheduler.asks import PodAsk

LEAST: Final = 0.05
"""Of the CPU, what pods with GPUs are always thought to get."""


class Habits:
    """Counts asks; `mix` is what is usual at present, the same value until that has changed.

    part: of the CPU that is taken, what pods with GPUs take; asked when a mix is made.
    """

    def __init__(self, part: Callable[[], float] = lambda: 1.0) -> None:
        self.mix = Mix()
        self._part = part
        self._history = History()
        self._turnover = Turnover()

    def saw(self, ask: PodAsk) -> None:
        """One more pod."""
        self._history.saw(ask_for(ask))
        if self._turnover.came():
            mix = beside_others(self._history.mix(), self._part())
            mix = replace(mix, leaving=self._turnover.leaving)
            if difference(self.mix, mix) > DIFFERENT:
                self.mix = mix

    def left(self) -> None:
        """One of them has ended, or is deleted."""
        self._turnover.left()


def ask_for(ask: PodAsk, models: frozenset[str] = frozenset()) -> Ask:
    """As policies have it: what runs at the same time. models: those that will do; empty: any."""
    requests = tuple(ask.containers[place].request for place in ask.together)
    return Ask(requests, ask.host.cpu_milli, ask.host.memory_mib, models)


def beside_others(mix: Mix, part: float) -> Mix:
    """A mix of pods with GPUs, and as many without that leave them this part of the CPU taken."""
    taken = sum(share * ask.cpu_milli for ask, share in mix.typical)
    others = round(taken * (1 / max(part, LEAST) - 1))
    if others <= 0:
        return mix
    return Mix((*((ask, share / 2) for ask, share in mix.typical), (Ask((), others), 0.5)))


def difference(one: Mix, other: Mix) -> float:
    """0 to 1: the part of all pods with GPUs that is of another kind in one than in the other, or
    by how much they differ in what others take of the CPU, or in how many leave, if that is
    more."""
    first, second = _parts(one), _parts(other)
    asks = first.keys() | second.keys()
    pods = sum(abs(first.get(ask, 0.0) - second.get(ask, 0.0)) for ask in asks) / 2
    cpu = abs(part_of_gpus(one) - part_of_gpus(other))
    return max(pods, cpu, abs(one.leaving - other.leaving))


def _parts(mix: Mix) -> Mapping[Ask, float]:
    found = {ask: share for ask, share in mix.typical if ask.requests}
    total = sum(found.values())
    return {ask: share / total for ask, share in found.items()}
