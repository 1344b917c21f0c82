"""What bind writes on a pod: gpu-admission's annotations, and a plan by UUID. Pure.

    tencent.com/predicate-node: node-7
    tencent.com/predicate-time: "1716200000000000000"       nanoseconds
    tencent.com/predicate-gpu-idx-0: "0,3"                  minors, of the first app container
    tencent.com/gpu-assigned: "false"
    tencent.com/vcuda-plan: {"version":1,"containers":{"main":{"gpus":["GPU-1f3a…"]}}}

`gpumanager.kube.plan` reads it on the node.
"""

import json
from collections.abc import Mapping
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
    """Return what bind writes. now_ns: nanoseconds since the epoch."""
    apps = [one.name for one in pod.containers if one.kind is ContainerKind.APP]
    containers: dict[str, Any] = {}
    indices: dict[str, str] = {}
    for one, places in zip(asking(pod), packing.gpus, strict=True):
        gpus = [topology.gpus[place] for place in places]
        containers[one.name] = {"gpus": [gpu.uuid for gpu in gpus]}
        if one.kind is ContainerKind.APP:  # the original counts `spec.containers` alone
            key = f"{ANNOTATION_PREDICATE_GPU_INDEX}{apps.index(one.name)}"
            indices[key] = ",".join(map(str, sorted(gpu.minor for gpu in gpus)))
    plan = {"version": VERSION, "containers": containers}
    return {
        ANNOTATION_PREDICATE_NODE: node,
        ANNOTATION_PREDICATE_TIME: str(now_ns),
        ANNOTATION_GPU_ASSIGNED: "false",
        ANNOTATION_PLAN: json.dumps(plan, separators=(",", ":")),
        **indices,
    }


def stale(has: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, None]:
    """Return, as a merge patch, what an earlier placing left and would not be overwritten."""
    return {
        key: None
        for key in has
        if key.startswith(ANNOTATION_PREDICATE_GPU_INDEX) and key not in wanted
    }
