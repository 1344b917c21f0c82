"""Keeps the annotations of this node's pods true, and removes the pods it failed to admit."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Grant
from gpumanager.ids import PodUID
from gpumanager.kube.backoff import RateLimit
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.kube.events import EventRecorder
from gpumanager.kube.pod import PodView
from gpumanager.kube.writer import CONFLICT, Task, retry_on_conflict
from gpumanager.node_status.annotations import Correction, corrections, healed, ignored
from gpumanager.node_status.pods import NodePods, path_of, reference
from gpumanager.node_status.recycling import hopeless, recyclable, refused_here

NOT_FOUND: Final = 404
MOST_NAMED: Final = 5
"""Annotations in one event."""
_PLUGIN_SAID: Final = re.compile(r"desc = (.*?)(?:, which is unexpected\.?)?\s*$", re.DOTALL)


class PodReconciler:
    """recycle: whether pods are deleted at all. clock: seconds, never back."""

    def __init__(
        self,
        api: KubeClient,
        pods: NodePods,
        events: EventRecorder,
        *,
        recycle: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.corrected = self.recycled = 0
        self._api = api
        self._pods = pods
        self._events = events
        self._recycle = recycle
        self._clock = clock
        self._limit = RateLimit()
        self._waiting_since: dict[PodUID, float] = {}
        self._explained: set[PodUID] = set()
        self._ignored: dict[PodUID, tuple[str, ...]] = {}

    def tasks(self, journal: Iterable[Grant], topology: Topology) -> Iterator[Task]:
        pods = self._pods.all()
        refused = {pod.kubelet_uid: pod for pod in pods if refused_here(pod)}
        for uid in refused.keys() - self._explained:
            # In our words alone: the kubelet wraps them in its own.
            message = cause(refused[uid])
            self._events.record(uid, warning=True, reason="GpuRefused", message=message, once=True)
        self._explained = set(refused)
        self._report_ignored(pods)
        for correction in corrections(journal, pods, topology):
            pod = correction.pod
            write = partial(self._correct, correction)
            yield Task(("annotations", pod.uid), f"annotations of {pod.full_name}", write)
        if not self._recycle:
            return
        for pod in recyclable(pods, self._waiting_since, self._clock()):
            yield Task(
                ("recycle", pod.uid), f"recycling of {pod.full_name}", partial(self._delete, pod)
            )

    def _report_ignored(self, pods: Iterable[PodView]) -> None:
        """Record which annotations of pods with GPUs have no effect, when that is new."""
        before, self._ignored = self._ignored, {}
        for pod in pods:
            if pod.ended or not any(one.cores != 0 for one in pod.containers):
                continue
            uid, keys = pod.kubelet_uid, ignored(pod)
            self._ignored[uid] = keys
            if keys and before.get(uid) != keys:
                names = ", ".join(keys[:MOST_NAMED])
                message = f"not understood, and without effect: annotation {names}"
                self._events.record(
                    uid, warning=True, reason="GpuAnnotationIgnored", message=message, once=True
                )

    async def _correct(self, correction: Correction) -> None:
        pod = correction.pod
        # A pod made anew under the name has another UID, which may not change: it is refused.
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(correction.annotations)}}
        item = await retry_on_conflict(lambda: self._api.patch(path_of(pod), patch))
        self._pods.put(item)
        self.corrected += 1
        if message := healed(correction):
            self._events.record(
                pod.kubelet_uid, warning=False, reason="GpuPlanCorrected", message=message
            )

    async def _delete(self, pod: PodView) -> None:
        after = self._limit.take(self._clock())
        if after is None:
            return
        self._limit = after
        why = "it can never start" if hopeless(pod) else "it was not admitted"
        same = {"uid": pod.uid, "resourceVersion": pod.status.version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": same}
        try:
            await self._api.delete(path_of(pod), body)
        except ApiRefused as error:
            if error.status not in {NOT_FOUND, CONFLICT}:
                raise
            return
        self.recycled += 1
        message = f"deleted, for its {pod.status.owners[0]} to make it anew: {why}"
        self._events.record(
            pod.kubelet_uid,
            warning=False,
            reason="GpuPodRecycled",
            message=message,
            about=reference(pod),
        )


def cause(pod: PodView) -> str:
    """Return the plugin's message, where the kubelet quotes it."""
    found = _PLUGIN_SAID.search(pod.status.message)
    return found[1] if found else pod.status.message
