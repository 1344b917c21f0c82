"""Keeps the annotations of this node's pods true, and removes the pods it failed to admit.

The scheduler wrote what it planned; what was granted may differ, because two pods of equal size
took each other's place, or because the plan did not fit any more. Schedulers count by these
annotations, so they are corrected to what the journal says once a container is confirmed.

Pods are deleted so that their owners (a ReplicaSet, a Job) create new ones. gpu-manager's rule: a
pod that this node failed to admit, and that has an owner. A kubelet never admits such a pod again:
it stays `Failed`. Another case: after the agent lost its journal, a container that can no longer be
identified waits in PreStartContainer forever. Only pods that ask for our resources and failed
because of them are deleted; never static or critical pods.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final

from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Grant, State
from gpumanager.ids import PodUID
from gpumanager.kube.backoff import RateLimit
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.kube.events import EventRecorder, ObjectReference
from gpumanager.kube.informer import ObjectStore
from gpumanager.kube.plan import ceiling, read_minors, read_plan
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.kube.writer import Task, retry_on_conflict
from gpumanager.names import (
    ANNOTATION_CORE_LIMIT,
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    VCORE,
    VMEMORY,
)
from gpumanager.node_status.other_managers import foreign_resources

MOST_NAMED: Final = 5
"""Annotations in one event."""
_PLUGIN_SAID: Final = re.compile(r"desc = (.*?)(?:, which is unexpected\.?)?\s*$", re.DOTALL)


def cause(pod: PodView) -> str:
    """Return the plugin's message, where the kubelet quotes it."""
    found = _PLUGIN_SAID.search(pod.status.message)
    return found[1] if found else pod.status.message


ADMISSION_FAILED: Final = "UnexpectedAdmissionError"
CRITICAL: Final = 2_000_000_000
"""The priority from which Kubernetes itself calls a pod critical."""
HOPELESS: Final = "no record of answering"
"""In PreStartContainer's error for a container that no retry can save."""
HOPELESS_SECONDS: Final = 60.0
PLUGIN_ANSWERED: Final = "rpc error"
"""The kubelet quotes the plugin behind this."""


def refused_here(pod: PodView) -> bool:
    """Return True if the kubelet did not admit it for the sake of our resources."""
    if pod.phase != "Failed" or pod.status.reason != ADMISSION_FAILED or not pod.asks:
        return False
    return any(word in pod.status.message for word in (VCORE, VMEMORY, PLUGIN_ANSWERED))


def hopeless(pod: PodView) -> bool:
    """Return True if a container of it waits for what cannot come."""
    return not pod.ended and pod.asks and any(HOPELESS in said for _, said in pod.status.waiting)


def replaceable(pod: PodView) -> bool:
    """Return True if its owner creates a new one, and nothing is lost but the pod."""
    owned = bool(pod.status.owners) and not {"Pod", "Node"} & set(pod.status.owners)
    return owned and not pod.status.static and not pod.terminating and pod.priority < CRITICAL


def recyclable(
    pods: Iterable[PodView], waiting_since: dict[PodUID, float], now: float
) -> tuple[PodView, ...]:
    """Return those to delete now. waiting_since: kept by the caller; since when each has been
    hopeless."""
    candidates = [pod for pod in pods if replaceable(pod)]
    lost = {pod.kubelet_uid for pod in candidates if hopeless(pod)}
    since = {uid: waiting_since.get(uid, now) for uid in lost}
    waiting_since.clear()
    waiting_since.update(since)
    return tuple(
        pod
        for pod in candidates
        if refused_here(pod) or now - since.get(pod.kubelet_uid, now) >= HOPELESS_SECONDS
    )


def corrections(
    journal: Iterable[Grant], pods: Iterable[PodView], topology: Topology
) -> Iterator[tuple[PodView, Mapping[str, str]]]:
    """Yield each pod whose annotations do not say what it has, with those that do.

    A container counts by its place in `spec.containers`; init containers have no annotation.
    """
    granted: dict[PodUID, dict[str, str]] = {}
    for one in journal:
        if one.state is State.CONFIRMED and one.pod is not None and not one.released:
            granted.setdefault(one.pod.uid, {})[one.pod.container] = minors(one, topology)
    for pod in pods:
        has = granted.get(pod.kubelet_uid, {})
        true = {
            f"{ANNOTATION_PREDICATE_GPU_INDEX}{place}": has[name]
            for place, name in enumerate(pod.apps)
            if has.get(name)
        }
        if true:
            true[ANNOTATION_GPU_ASSIGNED] = "true"
        wrong = {k: text for k, text in true.items() if pod.annotations.get(k) != text}
        if wrong and not pod.ended:
            yield pod, wrong


def healed(pod: PodView, wrong: Mapping[str, str]) -> str:
    """Return, for people, what was planned otherwise; empty where nothing was planned."""
    prefix = ANNOTATION_PREDICATE_GPU_INDEX
    return "; ".join(
        f"container {pod.apps[int(key.removeprefix(prefix))]} has GPU {text}, planned was "
        f"{pod.annotations[key]}"
        for key, text in wrong.items()
        if key.startswith(prefix) and key in pod.annotations
    )


def ignored(pod: PodView) -> tuple[str, ...]:
    """Return our annotations that cannot be understood: they have no effect."""
    found = []
    for key, text in sorted(pod.annotations.items()):
        if key == ANNOTATION_PLAN:
            wrong = read_plan(text) is None
        elif key == ANNOTATION_CORE_LIMIT:
            wrong = ceiling(pod.annotations) is None
        else:
            wrong = key.startswith(ANNOTATION_PREDICATE_GPU_INDEX) and read_minors(text) is None
        if wrong:
            found.append(key)
    return tuple(found)


def warnings(pods: Iterable[PodView]) -> Iterator[tuple[PodUID, str, str]]:
    """Yield what the users of pods should know, each with a reason for its event."""
    for pod in pods:
        if refused_here(pod):
            # In our words alone: the kubelet wraps them in its own.
            yield pod.kubelet_uid, "GpuRefused", cause(pod)
        ours = not pod.ended and any(one.cores != 0 for one in pod.containers)
        if ours and (keys := ignored(pod)):
            names = ", ".join(keys[:MOST_NAMED])
            message = f"not understood, and without effect: annotation {names}"
            yield pod.kubelet_uid, "GpuAnnotationIgnored", message


def minors(allocation: Grant, topology: Topology) -> str:
    """Return `0,3`: numbers of `/dev/nvidia<N>`, as the original has them."""
    gpus = (topology.by_uuid(uuid) for uuid in allocation.gpus)
    return ",".join(str(minor) for minor in sorted(gpu.minor for gpu in gpus if gpu))


class NodePods(ObjectStore[tuple[PodView, tuple[str, ...]]]):
    """The pods of this node, by the kubelet's UID, each with its resources of other GPU managers.

    A static pod is the kubelet's own: what the API server shows is a mirror with a UID of its own,
    which carries the kubelet's in an annotation.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            "/api/v1/pods",
            lambda item: (read_pod(item), foreign_resources(item)),
            lambda *_: changed(),
            key=lambda item: read_pod(item).kubelet_uid,
        )

    def get(self, uid: PodUID) -> PodView | None:
        known = self.known.get(uid)
        return known[0] if known else None

    def all(self) -> tuple[PodView, ...]:
        return tuple(pod for pod, _ in self.known.values())

    def foreign(self) -> Mapping[str, tuple[str, ...]]:
        """Return the pods that have GPUs of other managers, by namespace and name."""
        return {pod.full_name: found for pod, found in self.known.values() if found}

    def reference(self, uid: PodUID) -> ObjectReference | None:
        """Return the reference for an event about it; None while it is not known."""
        pod = self.get(uid)
        return None if pod is None else reference(pod)


def reference(pod: PodView) -> ObjectReference:
    """Return it with the kubelet's UID, by which `kubectl describe` finds a static pod's events."""
    return ObjectReference("Pod", pod.name, pod.kubelet_uid, pod.namespace)


def path_of(pod: PodView) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


class PodReconciler:
    """recycle: whether pods are deleted at all. clock: seconds, never back."""

    def __init__(
        self,
        api: KubeClient,
        pods: NodePods,
        events: EventRecorder,
        *,
        recycle: bool,
        clock: Callable[[], float],
    ) -> None:
        self._api, self._pods, self._events = api, pods, events
        self._recycle, self._clock = recycle, clock
        self._limit = RateLimit()
        self._waiting_since: dict[PodUID, float] = {}
        self._warned: set[tuple[PodUID, str, str]] = set()
        """Pods, and of what."""

    def tasks(self, journal: Iterable[Grant], topology: Topology) -> Iterator[Task]:
        pods = self._pods.all()
        before, self._warned = self._warned, set(warnings(pods))
        for uid, reason, message in self._warned - before:
            self._events.record(uid, warning=True, reason=reason, message=message, once=True)
        for pod, wrong in corrections(journal, pods, topology):
            write = partial(self._correct, pod, wrong)
            yield Task(("annotations", pod.uid), f"annotations of {pod.full_name}", write)
        if not self._recycle:
            return
        for pod in recyclable(pods, self._waiting_since, self._clock()):
            delete = partial(self._delete, pod)
            yield Task(("recycle", pod.uid), f"recycling of {pod.full_name}", delete)

    async def _correct(self, pod: PodView, wrong: Mapping[str, str]) -> None:
        # A pod made anew under the name has another UID, which may not change: it is refused.
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(wrong)}}
        self._pods.put(await retry_on_conflict(lambda: self._api.patch(path_of(pod), patch)))
        if message := healed(pod, wrong):
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
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise
            return
        message = f"deleted, for its {pod.status.owners[0]} to make it anew: {why}"
        self._events.record(
            pod.kubelet_uid,
            warning=False,
            reason="GpuPodRecycled",
            message=message,
            about=reference(pod),
        )
