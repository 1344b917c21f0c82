"""Claims on the cluster's page: what they hold of each GPU, once, with all pods that share them."""

from typing import Any

from gpumanager.scheduler.claims.cache import ClaimCache
from gpumanager.scheduler.cluster_document import _node, gpu_rows, line_of
from gpumanager.scheduler.node import NodeSaid
from gpumanager.scheduler.state import ClusterState
from gpumanager.units import GIB
from tests.scheduler.scheduler_world import node_object
from tests.sim.claims.claim_objects import gpu, slice_of

CLAIMS, SLICES = "resource claims", "resource slices"


def world() -> tuple[ClusterState, ClaimCache]:
    """Node a, whose two GPUs are offered to claims."""
    state = ClusterState()
    cache = ClaimCache(state.offer)
    item = node_object("a", 2)
    state.node(NodeSaid("a", next(iter(item["metadata"]["annotations"].values()))))
    uuids = [one.uuid for one in state.nodes["a"].topology.gpus]
    devices = [gpu(place) for place in range(2)]
    for device, uuid in zip(devices, uuids, strict=True):
        device["attributes"]["uuid"] = {"string": uuid}
    cache.stores[SLICES].put(slice_of("a", *devices))
    return state, cache


def indices(container: dict[str, Any]) -> list[int]:
    return [one["index"] for one in container["gpus"]]


def claim(name: str, *pods: str, device: str = "gpu-0", **consumed: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "gpu.tencent.com", "pool": "a", "device": device}
    if consumed:
        result["consumedCapacity"] = consumed  # type: ignore[assignment]
    users = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    allocation = {"devices": {"results": [result]}}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"devices": {}},
        "status": {"allocation": allocation, "reservedFor": users},
    }


def test_a_claim_is_one_line_with_all_its_pods_and_counted_once() -> None:
    state, cache = world()
    cache.stores[CLAIMS].put(claim("budget", "train", "eval", cores="40", memory="4Gi"))
    cache.stores[CLAIMS].put(claim("whole", "big", device="gpu-1"))

    node = state.nodes["a"]

    keys = ("cores_granted_percent", "memory_granted_bytes", "containers")
    assert [[one[key] for key in keys] for one in gpu_rows(node)] == [
        [40, 4 * GIB, 1], [100, 16 * GIB, 1],
    ]  # fmt: skip
    assert [(one["pod"], one["cores_granted_percent"], indices(one), one["claim"])
            for one in _node(node, "")["containers"]] == [
        ("train, eval", 40, [0], "budget"), ("big", 100, [1], "whole"),
    ]  # fmt: skip
    assert _node(node, "")["containers_left_out"] == 0
    line = line_of(node)
    assert line.pods == 3
    assert "team/budget" in line.text
    assert "team/eval" in line.text


def test_a_claim_that_is_freed_leaves_nothing_and_a_further_pod_is_seen() -> None:
    state, cache = world()
    cache.stores[CLAIMS].put(claim("budget", "train", cores="40", memory="4Gi"))
    cache.stores[CLAIMS].put(claim("budget", "train", "eval", cores="40", memory="4Gi"))
    (holder,) = state.nodes["a"].offered.holders
    assert holder.pods == ("train", "eval")

    cache.stores[CLAIMS].remove(claim("budget"))

    assert state.nodes["a"].offered.holders == ()
    assert line_of(state.nodes["a"]).total["gpus_free"] == 2
