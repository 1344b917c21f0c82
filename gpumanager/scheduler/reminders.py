"""Pods that were refused a moment too early, and about which nobody asks again. Pure.

kube-scheduler asks again about a pod that was refused when anything changes in the cluster. But it
hears of a change for itself, and so do we: where it hears first, it asks, is refused by what we
knew, and waits for the next change; in a quiet cluster for five minutes, after which it looks at
every pod again. So who was refused is looked at once more after a change. Who would fit by now,
and was not asked about for a while, is due for a reminder (decision 0048).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from gpumanager.kubelet.pods import PodUID, PodView

PATIENCE: Final = 2.0
"""Seconds that kube-scheduler has to ask by itself; doubled by each reminder of a pod."""
MOST_PATIENCE: Final = 64.0
PODS: Final = 1024
NAMES: Final = 1000
"""How many of the nodes it was refused on are looked at again."""
LOOKS: Final = 32
"""At so many pods each time, because a look takes as long as a filter."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that was told that none of these nodes has room. change: how many there had been."""

    pod: PodView
    names: tuple[str, ...]
    change: int
    since: float
    patience: float


class Reminders:
    """Who waits, those first who were refused longest ago.

    fits: whether a pod would be told of one of these nodes now. changes: how many there have been.
    clock: seconds.
    """

    def __init__(
        self,
        fits: Callable[[PodView, tuple[str, ...]], bool],
        changes: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._fits = fits
        self._changes = changes
        self._clock = clock
        self._waiting: OrderedDict[PodUID, Refused] = OrderedDict()

    def refused(self, pod: PodView, names: Iterable[str]) -> None:
        """None of these nodes has room for it."""
        known = self._waiting.pop(pod.uid, None)
        patience = known.patience if known else PATIENCE
        few = tuple(islice(names, NAMES))
        self._put(Refused(pod, few, self._changes(), self._clock(), patience))
        if len(self._waiting) > PODS:
            self._waiting.popitem(last=False)

    def forget(self, uid: PodUID) -> None:
        """There is room for it, or it is gone."""
        self._waiting.pop(uid, None)

    def clear(self) -> None:
        """Others are asked now."""
        self._waiting.clear()

    def due(self) -> tuple[PodView, ...]:
        """Pods to remind kube-scheduler of; they are not due again until twice the time is over."""
        now, changes = self._clock(), self._changes()
        ripe = (
            one
            for one in self._waiting.values()
            if one.change != changes and now - one.since >= one.patience
        )
        found = []
        for one in tuple(islice(ripe, LOOKS)):
            looked = replace(one, change=changes)
            if self._fits(one.pod, one.names):
                found.append(one.pod)
                patience = min(2 * one.patience, MOST_PATIENCE)
                looked = replace(looked, since=now, patience=patience)
            self._put(looked)
        return tuple(found)

    def _put(self, one: Refused) -> None:
        self._waiting[one.pod.uid] = one
        self._waiting.move_to_end(one.pod.uid)

    def __len__(self) -> int:
        return len(self._waiting)
