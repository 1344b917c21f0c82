"""What bind writes on a pod: gpu-admission's annotations, and a plan by UUID. Pure.

    tencent.com/predicate-node: node-7
    tencent.com/predicate-time: "1716200000000000000"       nanoseconds
    tencent.com/predicate-gpu-idx-0: "0,3"                  minors, of the first app container
    tencent.com/gpu-assigned: "false"
    tencent.com/vcuda-plan: {"version":1,"containers":{"main":{"gpus":["GPU-1f3a…"]}}}

`gpumanager.kube.plan` reads it on the node.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpumanager.gpu.values import Topology
from gpumanager.kube.plan import VERSION
from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_TIME,
)
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import asking


def annotations(
    pod: PodView, node: str, topology: Topology, packing: Packing, now_ns: int
) -> dict[str, str]:
    """now_ns: nanoseconds since the epoch."""
    return {
        ANNOTATION_PREDICATE_NODE: node,
        ANNOTATION_PREDICATE_TIME: str(now_ns),
        ANNOTATION_GPU_ASSIGNED: "false",
        ANNOTATION_PLAN: _plan(pod, topology, packing),
        **dict(_indices(pod, topology, packing)),
    }


def stale(has: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, None]:
    """What is left of an earlier placing, and would not be overwritten; as a merge patch has it."""
    return {
        key: None
        for key in has
        if key.startswith(ANNOTATION_PREDICATE_GPU_INDEX) and key not in wanted
    }


def _plan(pod: PodView, topology: Topology, packing: Packing) -> str:
    pairs = zip(asking(pod), packing.gpus, strict=True)
    containers: dict[str, Any] = {
        one.name: {"gpus": [topology.gpus[place].uuid for place in gpus]} for one, gpus in pairs
    }
    return json.dumps({"version": VERSION, "containers": containers}, separators=(",", ":"))


def _indices(pod: PodView, topology: Topology, packing: Packing) -> Iterator[tuple[str, str]]:
    """The original counts `spec.containers` alone."""
    apps = [one.name for one in pod.containers if one.kind is ContainerKind.APP]
    for one, gpus in zip(asking(pod), packing.gpus, strict=True):
        if one.kind is ContainerKind.APP:
            minors = sorted(topology.gpus[place].minor for place in gpus)
            place = apps.index(one.name)
            yield f"{ANNOTATION_PREDICATE_GPU_INDEX}{place}", ",".join(map(str, minors))
