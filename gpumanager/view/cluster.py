"""The nodes of a cluster from the extender's `/api/cluster`, as `view.values` has nodes. Pure.

The extender knows what is granted, not what is used, and of a pod only its sum: where that is
neither on one GPU nor whole GPUs, the share on each GPU is not told.
"""

import math
from collections.abc import Mapping
from typing import Any

from gpumanager.units import CORES_PER_GPU
from gpumanager.view.values import ContainerRow, GpuRow, NodeView


def read_cluster(document: Mapping[str, Any]) -> tuple[tuple[NodeView, ...], int]:
    """Return the nodes of one page of the document, and how many pages there are.

    Raises KeyError, TypeError, ValueError where it is no such document.
    """
    version, nodes = str(document["version"]), []
    for node in document["nodes"]:
        pods = []
        for pod in node["pods"]:
            if not pod["gpus"]:
                continue
            gpus, cores = len(pod["gpus"]), float(pod["cores"])
            known = gpus == 1 or cores == gpus * CORES_PER_GPU
            granted = cores / gpus if known else math.nan
            row = ContainerRow(
                namespace=str(pod["namespace"]),
                pod=str(pod["pod"]),
                container="",
                limit=0,
                granted=granted,
                ceiling=granted,
                claim=(str(pod["claim"]), "") if pod["claim"] else None,
            )
            pods.append((pod["gpus"], row))
        rows = tuple(
            GpuRow(
                index=int(gpu["index"]),
                uuid=str(gpu["uuid"]),
                model=str(gpu["model"]),
                bus_id="",
                healthy=not gpu["closed"],
                unfit="closed",  # for ill health, or by an operator's cordon
                memory=float(gpu["memory_bytes"]),
                memory_granted=float(gpu["memory_granted_bytes"]),
                cores=float(gpu["cores_granted_percent"]),
                containers=tuple(row for gpus, row in pods if int(gpu["index"]) in gpus),
            )
            for gpu in node["gpus"]
        )
        nodes.append(NodeView(str(node["name"]), version, True, (), rows))
    return tuple(nodes), int(document["pages"])
