"""What the agent tells a real API server of a real kubelet's node and pods."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import pytest

from gpumanager.gpu.inventory import read_inventory
from gpumanager.grants.grant import Grant
from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_INVENTORY,
    ANNOTATION_PREDICATE_GPU_INDEX,
    LABEL_COUNT,
    LABEL_PRODUCT,
)
from gpumanager.node_status.labels import label_value
from gpumanager.units import MEMORY_BLOCK
from tests.e2e.cluster.api_client import silent
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import NODE, NODE_PATH, RealNode
from tests.e2e.node.real_pods import PODS, RealPods, container, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
STORM = 20
T = TypeVar("T")


def metadata(node: RealNode, path: str) -> dict[str, Any]:
    return dict(node.api.get(path)["metadata"])


def found(look: Callable[[], T], what: str) -> T:
    """What `look` finds, once it finds something and the API server answers."""
    return cast(T, wait_for(lambda: silent(look), what))


def test_the_node_says_which_gpus_it_has(node: RealNode, agent: RealAgent) -> None:
    gpus = agent.machine.topology.gpus

    def told() -> dict[str, Any]:
        said = metadata(node, NODE_PATH)
        both = LABEL_PRODUCT in said["labels"] and ANNOTATION_INVENTORY in said["annotations"]
        return said if both else {}

    said = found(told, "the node has its labels and its inventory")
    labels, text = said["labels"], said["annotations"][ANNOTATION_INVENTORY]
    assert labels[LABEL_COUNT] == str(len(gpus))
    assert labels[LABEL_PRODUCT] == label_value(gpus[0].model)
    assert [gpu.uuid for gpu in read_inventory(text)[0].gpus] == [gpu.uuid for gpu in gpus]


def test_a_pod_says_which_gpu_each_container_has(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    asked = [container(name, "sleep 600", 30, 4) for name in ("a", "b")]
    uid = pods.create(pod("two", *asked))
    pods.running("two")

    def assigned() -> dict[str, str]:
        """The annotations, once both containers are told of: each is patched on its own."""
        annotations = metadata(node, f"{PODS}/two").get("annotations") or {}
        told = f"{ANNOTATION_PREDICATE_GPU_INDEX}1" in annotations
        return annotations if told and annotations[ANNOTATION_GPU_ASSIGNED] == "true" else {}

    said = found(assigned, "the pod has its annotations")

    minors = {gpu.uuid: str(gpu.minor) for gpu in agent.machine.topology.gpus}
    granted = {one.pod.container: one.gpus for one in agent.promised_to(uid) if one.pod}
    for place, name in enumerate(("a", "b")):
        (uuid,) = granted[name]
        assert said[f"{ANNOTATION_PREDICATE_GPU_INDEX}{place}"] == minors[uuid]


def test_plans_that_a_storm_of_equal_pods_mixed_up_are_put_right(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    """All of them were planned for one GPU, which cannot be."""
    minors = {gpu.uuid: str(gpu.minor) for gpu in agent.machine.topology.gpus}
    planned = f"{ANNOTATION_PREDICATE_GPU_INDEX}0"
    described = [pod(f"mixed-{n}", container("main", "sleep 600", 20, 4)) for n in range(STORM)]
    for one in described:
        one["metadata"]["annotations"] = {planned: "0", ANNOTATION_GPU_ASSIGNED: "false"}
    with ThreadPoolExecutor(STORM) as clients:
        uids = list(clients.map(pods.create, described))

    for n, uid in enumerate(uids):
        pods.running(f"mixed-{n}")
        (own,) = agent.promised_to(uid)

        def right(name: str = f"mixed-{n}", minor: str = minors[own.gpus[0]]) -> bool:
            annotations = metadata(node, f"{PODS}/{name}")["annotations"]
            assigned = annotations[ANNOTATION_GPU_ASSIGNED] == "true"
            return bool(assigned and annotations[planned] == minor)

        found(right, f"mixed-{n} says which GPU it has")
        if minors[own.gpus[0]] != "0":
            assert "planned was 0" in event(node, uid, "GpuPlanCorrected")
    assert len({agent.promised_to(uid)[0].gpus for uid in uids}) > 1


def event(node: RealNode, uid: str, reason: str) -> str:
    """What a pod's event of this reason says, once there is one."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid={uid}"

    def said() -> str:
        items = node.api.get(path)["items"] or []
        return next((one["message"] for one in items if one["reason"] == reason), "")

    return found(said, f"{reason} of {uid}")


def refused_pod(agent: RealAgent, name: str, **more: Any) -> dict[str, Any]:
    """It asks for more memory than a GPU has, and less than the node."""
    blocks = agent.machine.topology.gpus[0].memory // MEMORY_BLOCK + 1
    made = pod(name, container("main", "sleep 600", 30, blocks))
    made["metadata"] |= more
    return made


def test_a_pod_that_was_not_admitted_goes_if_somebody_makes_it_anew(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    owned = pods.create(refused_pod(agent, "owned", ownerReferences=[OWNER]))
    naked = pods.create(refused_pod(agent, "naked"))

    assert "ReplicaSet" in event(node, owned, "GpuPodRecycled")
    wait_for(lambda: not pods.exists("owned"), "the pod is gone")
    explained = event(node, naked, "GpuRefused")
    assert "blocks asked" in explained
    assert not explained.startswith("Allocate failed")
    assert pods.ended("naked")["phase"] == "Failed"


def test_a_static_pod_s_mirror_says_what_the_static_pod_has(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    described = pod("fixed", container("main", "sleep 600", 30, 4))
    described["metadata"]["namespace"] = "default"
    file = node.static_pods / "fixed.json"
    file.write_text(json.dumps(described))
    path = f"{PODS}/fixed-{NODE}"
    try:

        def assigned() -> dict[str, str]:
            annotations = metadata(node, path).get("annotations") or {}
            return annotations if ANNOTATION_GPU_ASSIGNED in annotations else {}

        said = found(assigned, "the mirror has its annotations")
        hashed = said["kubernetes.io/config.hash"]
        (promise,) = agent.promised_to(hashed)
    finally:
        file.unlink()

    minors = {gpu.uuid: str(gpu.minor) for gpu in agent.machine.topology.gpus}
    assert said[f"{ANNOTATION_PREDICATE_GPU_INDEX}0"] == minors[promise.gpus[0]]
    wait_for(lambda: not pods.exists(f"fixed-{NODE}"), "the mirror is gone")


def test_what_the_api_server_missed_is_said_when_it_is_back(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    """The kubelet starts the pod while nobody but itself can be asked."""
    minors = {gpu.uuid: str(gpu.minor) for gpu in agent.machine.topology.gpus}
    file = node.static_pods / "lonely.json"
    described = pod("lonely", container("main", "sleep 600", 30, 4))
    described["metadata"]["namespace"] = "default"
    name = f"lonely-{NODE}"

    def promised() -> list[Grant]:
        return [one for one in agent.promises() if one.pod and one.pod.name == name]

    def assigned() -> bool:
        annotations = metadata(node, f"{PODS}/{name}").get("annotations") or {}
        return annotations.get(f"{ANNOTATION_PREDICATE_GPU_INDEX}0") == minors[own.gpus[0]]

    try:
        node.stop_api()
        try:
            file.write_text(json.dumps(described))
            wait_for(lambda: pods.static_logs(name, "main"), "it has started")
        finally:
            node.start_api()
        # A kubelet that could ask nobody for two minutes believes no token: then it comes only now.
        (own,) = wait_for(promised, "its promise has a name")
        found(assigned, "the mirror has its annotations")
    finally:
        file.unlink(missing_ok=True)
    wait_for(lambda: not pods.static_is_there(name), "it has ended")
