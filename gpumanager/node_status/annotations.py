"""The original's annotations of a pod, kept true: which GPUs its containers really have. Pure.

The scheduler wrote what it planned; what was granted may differ, because two pods of equal size
took each other's place, or because the plan did not fit any more. Schedulers count by these
annotations, so they are corrected to what the journal says once a container is confirmed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Grant, State
from gpumanager.ids import PodUID
from gpumanager.kube.plan import ceiling, read_minors, read_plan
from gpumanager.kube.pod import PodView
from gpumanager.names import (
    ANNOTATION_CORE_LIMIT,
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
)

ASSIGNED = "true"


@dataclass(frozen=True, slots=True)
class Correction:
    """What has to be written to one pod. was: planned otherwise, by key."""

    pod: PodView
    annotations: Mapping[str, str]
    was: Mapping[str, str]


def corrections(
    journal: Iterable[Grant], pods: Iterable[PodView], topology: Topology
) -> Iterator[Correction]:
    """Yield one for each pod whose annotations do not say what it has.

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
            true[ANNOTATION_GPU_ASSIGNED] = ASSIGNED
        wrong = {k: text for k, text in true.items() if pod.annotations.get(k) != text}
        if wrong and not pod.ended:
            was = {key: text for key, text in pod.annotations.items() if key in wrong}
            yield Correction(pod, wrong, was)


def healed(correction: Correction) -> str:
    """Return, for people, what was planned otherwise; empty where nothing was planned."""
    places = (key for key in correction.was if key.startswith(ANNOTATION_PREDICATE_GPU_INDEX))
    return "; ".join(
        f"container {correction.pod.apps[int(key.removeprefix(ANNOTATION_PREDICATE_GPU_INDEX))]}"
        f" has GPU {correction.annotations[key]}, planned was {correction.was[key]}"
        for key in places
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


def minors(allocation: Grant, topology: Topology) -> str:
    """Return `0,3`: numbers of `/dev/nvidia<N>`, as the original has them."""
    gpus = (topology.by_uuid(uuid) for uuid in allocation.gpus)
    return ",".join(str(minor) for minor in sorted(gpu.minor for gpu in gpus if gpu))
