"""Requeue pods that were refused by a stale view of the cluster (decision 0048).

kube-scheduler retries a refused pod when anything changes in the cluster. It and the extender watch
the cluster separately. If kube-scheduler gets an event first, the extender refuses by its older
state, and kube-scheduler waits for the next event: in a quiet cluster for five minutes. So the
extender evaluates refused pods again after each change. If a pod would fit now and kube-scheduler
has not asked for a while, the extender annotates it: a change that makes kube-scheduler retry it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from gpumanager.ids import PodUID
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.kube.pod import PodView
from gpumanager.names import ANNOTATION_ROOM_FOUND

log = logging.getLogger(__name__)

FIRST_REQUEUE_SECONDS: Final = 2.0
"""Seconds that kube-scheduler has to ask by itself; doubled each time that a pod is requeued."""
LONGEST_REQUEUE_SECONDS: Final = 64.0
PODS: Final = 1024
NAMES: Final = 1000
"""How many of the nodes it was refused on are judged again."""
PODS_JUDGED_AT_ONCE: Final = 32
"""Pods judged each time, because one takes as long as a filter."""
PATCH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """A pod that fitted none of these nodes. change: of the cluster, the last that counted then."""

    pod: PodView
    names: tuple[str, ...]
    change: int
    since: float
    patience: float


@dataclass(slots=True)
class RefusedPods:
    """Pods to judge again, those first that were refused longest ago. Pure.

    fits: whether a pod still waits, and would fit one of these nodes now. changes: how many there
    have been. clock: seconds.
    """

    _fits: Callable[[PodView, tuple[str, ...]], bool]
    _changes: Callable[[], int]
    _clock: Callable[[], float]
    waiting: dict[PodUID, RefusedPod] = field(default_factory=dict)

    def add(self, pod: PodView, names: Iterable[str]) -> None:
        """Keep a pod that fits none of these nodes."""
        known = self.waiting.pop(pod.uid, None)
        patience = known.patience if known else FIRST_REQUEUE_SECONDS
        few, now = tuple(islice(names, NAMES)), self._clock()
        self.waiting[pod.uid] = RefusedPod(pod, few, self._changes(), now, patience)
        if len(self.waiting) > PODS:
            del self.waiting[next(iter(self.waiting))]

    def take_due(self) -> tuple[PodView, ...]:
        """Return the pods to requeue; they are not due again until twice the time is over."""
        now, changes = self._clock(), self._changes()
        ripe = (
            one
            for one in self.waiting.values()
            if one.change != changes and now - one.since >= one.patience
        )
        found = []
        for one in tuple(islice(ripe, PODS_JUDGED_AT_ONCE)):
            judged = replace(one, change=changes)
            if self._fits(one.pod, one.names):
                found.append(one.pod)
                patience = min(2 * one.patience, LONGEST_REQUEUE_SECONDS)
                judged = replace(judged, since=now, patience=patience)
            del self.waiting[one.pod.uid]
            self.waiting[one.pod.uid] = judged
        return tuple(found)


async def requeue(api: KubeClient, pod: PodView) -> None:
    """Annotate the pod."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    note = {ANNOTATION_ROOM_FOUND: datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        async with asyncio.timeout(PATCH_SECONDS):
            await api.patch(path, {"metadata": {"uid": pod.uid, "annotations": note}})
        log.info("%s/%s: requeued, it fits now", pod.namespace, pod.name)
    except (ApiRefused, ApiUnavailable, TimeoutError, *NOT_UNDERSTOOD) as error:
        log.debug("%s: %r", path, error)
