"""What a pod's annotations say: what the scheduler planned, and how far its share may go. Pure.

    tencent.com/vcuda-plan: {"version": 1, "containers": {"main": {"gpus": ["GPU-1f3a…"]}}}
    tencent.com/predicate-gpu-idx-0: "0,3"      of the first app container, as gpu-admission writes

A plan is an intent: it is followed where it still fits, and never a reason to refuse a pod. One
that cannot be understood is none.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.kube.pod import ContainerKind, ContainerView, PodView
from gpumanager.names import (
    ANNOTATION_CORE_LIMIT,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
)
from gpumanager.units import CORES_PER_GPU, natural_number

VERSION: Final = 1
MOST_GPUS: Final = 256
"""Of one container. What is behind so many commas is no number."""


def planned(topology: Topology, pod: PodView, container: ContainerView) -> tuple[Gpu, ...]:
    """Return the GPUs planned for one container, by index; none where no plan can be followed."""
    found, count = named(topology, pod, container)
    return found if len(found) == count else ()


def named(
    topology: Topology, pod: PodView, container: ContainerView
) -> tuple[tuple[Gpu, ...], int]:
    """Return the GPUs planned for one container that exist, by index, and how many were planned."""
    plan = read_plan(pod.annotations.get(ANNOTATION_PLAN, "")) or {}
    if wanted := plan.get(container.name):
        return tuple(gpu for gpu in topology.gpus if gpu.uuid in wanted), len(wanted)
    # gpu-admission counts the containers of `spec.containers` alone. An init container, whose
    # devices an app container gets again, goes where the first app container will be.
    apps = [one.name for one in pod.containers if one.kind is ContainerKind.APP]
    place = apps.index(container.name) if container.name in apps else 0
    minors = read_minors(pod.annotations.get(f"{ANNOTATION_PREDICATE_GPU_INDEX}{place}", "")) or ()
    return tuple(gpu for gpu in topology.gpus if gpu.minor in minors), len(minors)


def read_plan(text: str) -> Mapping[str, set[GpuUUID]] | None:
    """Return the GPUs of each container; None where the text is no plan."""
    try:
        plan: Any = json.loads(text)
        if plan["version"] != VERSION:
            return None
        containers = plan["containers"].items()
        return {name: {GpuUUID(str(uuid)) for uuid in one["gpus"]} for name, one in containers}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read_minors(text: str) -> set[int] | None:
    """Read `0,3`; None where it cannot be understood."""
    minors = {natural_number(word) for word in text.split(",", MOST_GPUS)}
    return None if None in minors else {one for one in minors if one is not None}


def ceiling(annotations: Mapping[str, str]) -> int | None:
    """Return the percentage that a pod may burst up to; None where its annotation is no number."""
    number = natural_number(annotations.get(ANNOTATION_CORE_LIMIT, ""))
    return min(number, CORES_PER_GPU) if number else None
