"""The account by which a real cluster is judged sees what is wrong with one."""

import json
from typing import Any

from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    VCORE,
    VMEMORY,
)
from tests.e2e.cluster.cluster_nodes import node_object
from tests.e2e.cluster.gpu_accounts import accounts

NODES = [node_object("t4", "t4x4")]


def pod(name: str, cores: int, memory: int, gpu: str = "", given: str = "") -> dict[str, Any]:
    """gpu: planned, and so the pod is bound. given: a minor, once its node has said so."""
    plan = {"version": 1, "containers": {"main": {"gpus": [gpu]}}}
    said = {
        ANNOTATION_PLAN: json.dumps(plan),
        ANNOTATION_GPU_ASSIGNED: "true" if given else "false",
        f"{ANNOTATION_PREDICATE_GPU_INDEX}0": given or "0",
    }
    limits = {VCORE: str(cores), VMEMORY: str(memory)}
    containers = [{"name": "main", "resources": {"limits": limits}}]
    return {
        "metadata": {"name": name, "annotations": said},
        "spec": {"containers": containers, **({"nodeName": "t4"} if gpu else {})},
        "status": {"phase": "Pending"},
    }


def test_pods_that_share_a_gpu_within_its_limits_are_right() -> None:
    found = accounts(NODES, [pod("a", 60, 30, "GPU-t4-1"), pod("b", 40, 30, "GPU-t4-1")])

    assert (found.overbooked, found.elsewhere, found.bound) == ([], [], ["a", "b"])


def test_too_many_cores_or_too_much_memory_on_one_gpu_is_seen() -> None:
    of_cores = [pod("a", 60, 1, "GPU-t4-1"), pod("b", 41, 1, "GPU-t4-1")]
    of_memory = [pod("a", 10, 40, "GPU-t4-2"), pod("b", 10, 40, "GPU-t4-2")]

    assert accounts(NODES, of_cores).overbooked == [("t4", "GPU-t4-1")]
    assert accounts(NODES, of_memory).overbooked == [("t4", "GPU-t4-2")]


def test_a_gpu_that_is_not_there_is_seen() -> None:
    assert accounts(NODES, [pod("a", 10, 1, "GPU-v100-0")]).overbooked == [("t4", "GPU-v100-0")]


def test_what_the_node_gave_counts_and_not_what_was_planned() -> None:
    found = accounts(NODES, [pod("a", 60, 1, "GPU-t4-1", "2"), pod("b", 60, 1, "GPU-t4-1")])

    assert (found.overbooked, found.elsewhere) == ([], ["a"])
    assert found.cores["t4", "GPU-t4-2"] == 60


def test_who_waits_though_there_is_room_is_seen() -> None:
    taken = [pod(f"taken-{n}", 70, 1, f"GPU-t4-{n}") for n in range(4)]

    found = accounts(NODES, [*taken, pod("small", 30, 1), pod("large", 31, 1)])

    assert found.overlooked == ["small"]
