"""Which pods usually come, learnt from those that the API server tells of.

A new mix makes every score that is kept stale. So one is made seldom, and taken only if it differs
from the one in use: a cluster that keeps its habits keeps its scores.
"""

from collections.abc import Mapping
from typing import Final

from gpumanager.placement.cluster import Ask, History, Mix
from gpumanager.scheduler.asks import PodAsk

FIRST: Final = (100, 300)
EVERY: Final = 1000
DIFFERENT: Final = 0.1
"""Of all pods: how many have to be of other kinds."""


class Habits:
    """Counts asks; `mix` is what is usual at present, the same value until that has changed."""

    def __init__(self) -> None:
        self.mix = Mix()
        self.seen = 0
        self._history = History()

    def saw(self, ask: PodAsk) -> None:
        """One more pod."""
        self._history.saw(ask_for(ask))
        self.seen += 1
        if self.seen in FIRST or self.seen % EVERY == 0:
            mix = self._history.mix()
            if difference(self.mix, mix) > DIFFERENT:
                self.mix = mix


def ask_for(ask: PodAsk, models: frozenset[str] = frozenset()) -> Ask:
    """As policies have it: what runs at the same time. models: those that will do; empty: any."""
    requests = tuple(ask.containers[place].request for place in ask.together)
    return Ask(requests, ask.host.cpu_milli, ask.host.memory_mib, models)


def difference(one: Mix, other: Mix) -> float:
    """The part of all pods, 0 to 1, that is of another kind in one than in the other."""
    first, second = _parts(one), _parts(other)
    asks = first.keys() | second.keys()
    return sum(abs(first.get(ask, 0.0) - second.get(ask, 0.0)) for ask in asks) / 2


def _parts(mix: Mix) -> Mapping[Ask, float]:
    return dict(mix.typical)
