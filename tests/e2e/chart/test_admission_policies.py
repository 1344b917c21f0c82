"""The chart's admission policies on a real API server: each account tries what it must not.

What the accounts do in the ordinary course is tried too, call by call; that the agent itself works
under its policies is shown by `test_chart_on_a_node`. Nodes and pods here are objects alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Final

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.gpu import SimulatedGpus
from tests.chart import helm_program
from tests.e2e.chart.real_release import Release, skip_if_too_old
from tests.e2e.cluster.api_client import ApiClient, ApiError
from tests.e2e.cluster.bound_account import NAMESPACE, BoundAccount
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import RealNode

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

FIRST_WITH_POLICIES: Final = 30
FULL: Final = "held-gpu-manager"
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
SECRETS: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets"
HOOKS: Final = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{FULL}"
MERGE: Final = "merge-patch+json"
STRATEGIC: Final = "strategic-merge-patch+json"
GPUS: Final = {"limits": {VCORE: "30", VMEMORY: "4"}}
DENIED: Final = "ValidatingAdmissionPolicy"
PLAN: Final = {
    "tencent.com/predicate-node": "held-a",
    "tencent.com/predicate-time": "1",
    "tencent.com/predicate-gpu-idx-0": "0",
    "tencent.com/gpu-assigned": "false",
    "tencent.com/vcuda-plan": "{}",
}


@dataclass
class Held:
    """The release, its accounts, and who makes what they try their rights on."""

    admin: ApiClient
    accounts: Mapping[str, BoundAccount]
    made: list[str] = field(default_factory=list)

    def pod(self, name: str, on: str = "held-a", **more: Any) -> str:
        """Its path; on: empty for one that waits. gpus, owned, phase: as they say."""
        resources = GPUS if more.get("gpus", True) else {}
        spec: dict[str, Any] = {"schedulerName": "nobody"}
        spec["containers"] = [{"name": "main", "image": "none", "resources": resources}]
        if on:
            spec["nodeName"] = on
        metadata: dict[str, Any] = {"name": name}
        if more.get("owned"):
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
            metadata["ownerReferences"] = [owner]
        self.admin.create(PODS, {"metadata": metadata, "spec": spec})
        self.made.append(path := f"{PODS}/{name}")
        if phase := more.get("phase"):
            self.admin.ask("PATCH", f"{path}/status", {"status": {"phase": phase}}, MERGE)
        return path

    def patch(self, who: str, path: str, body: Any, kind: str = MERGE) -> None:
        self.accounts[who].api.ask("PATCH", path, body, kind)

    def refuses(self, what: Callable[[], object], because: str) -> None:
        with pytest.raises(ApiError) as refused:
            what()
        assert DENIED in refused.value.said, refused.value
        assert because in refused.value.said

    def patch_refused(
        self, who: str, path: str, body: Any, because: str, kind: str = MERGE
    ) -> None:
        self.refuses(lambda: self.patch(who, path, body, kind), because)


@pytest.fixture(scope="module")
def release(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> Iterator[Held]:
    node = stage[0]
    skip_if_too_old(node)
    if node.minor < FIRST_WITH_POLICIES:
        pytest.skip(f"API server {node.version} has no admission policies of v1")
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    made = Release(node, "held")
    made.install()
    for name in ("held-a", "held-b"):
        node.api.create(NODES, {"metadata": {"name": name}})
    accounts = {
        "agent": BoundAccount(node, f"{FULL}-agent", "held-a"),
        "extender": BoundAccount(node, f"{FULL}-extender", "held-b"),
        "webhook": BoundAccount(node, f"{FULL}-webhook", "held-b"),
    }
    held = Held(node.api, accounts)
    for name in accounts:  # a role is believed a moment after it is there, a policy too
        wait_for(partial(_is_held, held, name), f"{name} is held")
    yield held
    for one in accounts.values():
        one.remove()
    for name in ("held-a", "held-b"):
        node.api.delete(f"{NODES}/{name}", 0)
    made.uninstall()


def _is_held(held: Held, name: str) -> bool:
    path, body = {
        "agent": (f"{NODES}/held-b", {"metadata": {"labels": {"tencent.com/gpu-count": "1"}}}),
        "extender": (held.accounts["agent"].path, {"metadata": {"labels": {"a": "b"}}}),
        "webhook": (HOOKS, {"metadata": {"labels": {"a": "b"}}}),
    }[name]
    try:
        held.patch(name, path, body)
    except ApiError as error:
        return DENIED in error.said
    return False


@pytest.fixture
def held(release: Held) -> Iterator[Held]:
    """Pods that a test makes go with it."""
    yield release
    for path in release.made:
        release.admin.delete(path, 0)
    release.made.clear()


def annotated(**said: str | None) -> Any:
    marks = {f"tencent.com/{key.replace('_', '-')}": text for key, text in said.items()}
    return {"metadata": {"annotations": marks}}


def image(text: str) -> Any:
    return {"spec": {"containers": [{"name": "main", "image": text}]}}


def test_an_agent_does_its_work(held: Held) -> None:
    pod = held.pod("ours")
    failed = held.pod("failed", owned=True, phase="Failed")
    node = f"{NODES}/held-a"
    labels = {"tencent.com/gpu-count": "4", "tencent.com/gpu-product": "T4"}
    condition = {"reason": "r", "message": "m"}

    held.patch("agent", pod, annotated(gpu_assigned="true", predicate_gpu_idx_0="1"))
    held.patch("agent", pod, annotated(predicate_gpu_idx_0="2"))
    held.patch("agent", node, {"metadata": {"labels": labels}})
    held.patch("agent", node, annotated(gpu_inventory="{}"))
    held.patch("agent", node, {"metadata": {"labels": {"tencent.com/gpu-product": None}}})
    for kind, status in product(("GpusHealthy", "OtherGpuManager"), ("True", "False")):
        body = {"status": {"conditions": [condition | {"type": kind, "status": status}]}}
        held.patch("agent", f"{node}/status", body, STRATEGIC)
    held.accounts["agent"].api.ask("DELETE", failed)


@pytest.mark.parametrize(
    ("body", "because"),
    [
        (image("evil"), "changes annotations of pods"),
        ({"metadata": {"labels": {"a": "b"}}}, "changes annotations of pods"),
        ({"metadata": {"finalizers": ["a.example/b"]}}, "changes annotations of pods"),
        (annotated(vcuda_core_limit="100"), "its own annotations"),
        ({"metadata": {"annotations": {"a": "b"}}}, "its own annotations"),
    ],
    ids=["image", "labels", "finalizers", "another annotation", "a foreign annotation"],
)
def test_an_agent_changes_nothing_else_of_its_pods(held: Held, body: Any, because: str) -> None:
    kind = STRATEGIC if "spec" in body else MERGE
    held.patch_refused("agent", held.pod("ours"), body, because, kind)


def test_an_agent_leaves_other_nodes_pods_alone(held: Held) -> None:
    other = held.pod("other", "held-b", owned=True, phase="Failed")
    waiting = held.pod("waiting", "")

    for path in (other, waiting):
        held.patch_refused("agent", path, annotated(gpu_assigned="true"), "its own node alone")
    held.refuses(
        lambda: held.accounts["agent"].api.ask("DELETE", other), "pods of its own node alone"
    )


def test_an_agent_leaves_pods_alone_that_are_none_of_its_business(held: Held) -> None:
    plain = held.pod("plain", gpus=False, owned=True, phase="Failed")
    works = held.pod("works", owned=True, phase="Running")
    alone = held.pod("alone", phase="Failed")

    held.patch_refused("agent", plain, annotated(gpu_assigned="true"), "pods with GPUs")
    for path in (plain, works, alone):
        held.refuses(partial(held.accounts["agent"].api.ask, "DELETE", path), "deletes")


@pytest.mark.parametrize(
    ("body", "because"),
    [
        ({"spec": {"unschedulable": True}}, "and nothing else"),
        ({"spec": {"taints": []}}, "and nothing else"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, "own labels"),
        ({"metadata": {"labels": {"tencent.com/gpu": "true"}}}, "own labels"),
        (annotated(gpu_cordon="all"), "own annotation"),
    ],
    ids=["cordon", "taints", "role", "another label", "another annotation"],
)
def test_an_agent_changes_nothing_else_of_its_node(held: Held, body: Any, because: str) -> None:
    path = f"{NODES}/held-a"
    if body.get("spec") == {"taints": []}:
        taint = {"key": "a", "effect": "NoSchedule"}
        held.admin.ask("PATCH", path, {"spec": {"taints": [taint]}}, MERGE)
    held.patch_refused("agent", path, body, because)
    held.patch_refused("agent", f"{NODES}/held-b", body, "its own node alone")


@pytest.mark.parametrize(
    ("status", "because"),
    [
        ({"capacity": {VCORE: "100000"}}, "conditions of its node's status"),
        ({"allocatable": {"cpu": "64"}}, "conditions of its node's status"),
        ({"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}, "conditions of"),
        ({"daemonEndpoints": {"kubeletEndpoint": {"Port": 22}}}, "conditions of"),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, "own condition"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_an_agent_changes_nothing_else_of_its_nodes_status(
    held: Held, status: Any, because: str
) -> None:
    path = f"{NODES}/held-a/status"
    held.patch_refused("agent", path, {"status": status}, because, STRATEGIC)


def binding(pod: str, **more: Any) -> Any:
    name = pod.rpartition("/")[2]
    metadata = {"name": name, "annotations": PLAN, **more}
    target = {"apiVersion": "v1", "kind": "Node", "name": "held-a"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def test_an_extender_does_its_work(held: Held) -> None:
    pod, own = held.pod("waits", ""), held.accounts["extender"]
    uid = held.admin.get(pod)["metadata"]["uid"]
    held.admin.ask("PATCH", pod, annotated(predicate_gpu_idx_1="3"), MERGE)

    held.patch("extender", pod, annotated(gpu_room_found="2026-01-01T00:00:00+00:00"))
    held.patch("extender", pod, annotated(predicate_gpu_idx_1=None))
    for role in ("leader", "standby"):
        labels = {"tencent.com/extender-role": role}
        held.patch("extender", own.path, {"metadata": {"labels": labels}})
    own.api.create(f"{pod}/binding", binding(pod, uid=uid))

    assert held.admin.get(pod)["spec"]["nodeName"] == "held-a"


def test_an_extender_changes_nothing_else_of_pods(held: Held) -> None:
    ours, plain = held.pod("ours"), held.pod("plain", gpus=False)
    agent = held.accounts["agent"].path
    role = {"metadata": {"labels": {"tencent.com/extender-role": "leader"}}}
    refused = (
        (ours, image("evil"), "changes metadata"),
        (agent, image("evil"), "changes metadata"),
        (ours, {"metadata": {"finalizers": ["a.example/b"]}}, "changes metadata"),
        (ours, {"metadata": {"labels": {"a": "b"}}}, "no label"),
        (ours, role, "no label"),
        (agent, role, "pods with GPUs alone"),
        (held.accounts["extender"].path, {"metadata": {"labels": {"a": "b"}}}, "no label"),
        (plain, annotated(gpu_room_found="now"), "pods with GPUs alone"),
        (ours, annotated(vcuda_core_limit="100"), "own annotations"),
        (ours, annotated(gpu_assigned="true"), "own annotations"),
    )
    for path, body, because in refused:
        kind = STRATEGIC if "spec" in body else MERGE
        held.patch_refused("extender", path, body, because, kind)


def test_an_extender_binds_with_a_plan_alone(held: Held) -> None:
    pod = held.pod("waits", "")
    uid = held.admin.get(pod)["metadata"]["uid"]
    elsewhere = PLAN | {"tencent.com/predicate-node": "held-b"}
    refused = (
        (binding(pod, uid=uid, annotations={}), "plan of their GPUs"),
        (binding(pod, uid=uid, annotations=elsewhere), "plan of their GPUs"),
        (binding(pod, uid=uid, annotations=PLAN | {"a": "b"}), "own annotations"),
        (binding(pod, uid=uid, labels={"a": "b"}), "labels none"),
        (binding(pod), "asked about"),
    )
    for body, because in refused:
        held.refuses(partial(held.accounts["extender"].api.create, f"{pod}/binding", body), because)


def hooks(held: Held, **changed: Any) -> Any:
    (hook,) = held.admin.get(HOOKS)["webhooks"]
    return {"webhooks": [hook | changed]}


def test_a_webhook_writes_whom_to_believe_and_keeps_its_secret(held: Held) -> None:
    (hook,) = held.admin.get(HOOKS)["webhooks"]
    believed = hook["clientConfig"] | {"caBundle": "bm9ib2R5"}
    secret = {"metadata": {"name": f"{FULL}-webhook"}, "type": "Opaque", "data": {"a": "YQ=="}}

    held.patch("webhook", HOOKS, hooks(held, clientConfig=believed))
    held.accounts["webhook"].api.create(SECRETS, secret)
    held.made.append(f"{SECRETS}/{FULL}-webhook")
    held.patch("webhook", f"{SECRETS}/{FULL}-webhook", {"data": {"a": "Yg=="}})


def test_a_webhook_changes_nothing_else_of_its_configurations(held: Held) -> None:
    (hook,) = held.admin.get(HOOKS)["webhooks"]
    service = hook["clientConfig"] | {"service": hook["clientConfig"]["service"] | {"path": "/x"}}
    url = {"url": "https://evil.example/"}
    everything: dict[str, Any] = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    changes: tuple[dict[str, Any], ...] = (
        {"rules": [everything | {"operations": ["*"]}]},
        {"clientConfig": service},
        {"clientConfig": url},
        {"failurePolicy": "Fail"},
        {"matchConditions": []},
        {"objectSelector": {}},
        {"namespaceSelector": {"matchLabels": {"a": "b"}}},
        {"timeoutSeconds": 30},
        {"reinvocationPolicy": "Never"},
    )
    for changed in changes:
        held.patch_refused("webhook", HOOKS, hooks(held, **changed), "nothing else")
    held.patch_refused("webhook", HOOKS, {"webhooks": []}, "neither adds nor removes")
    held.patch_refused("webhook", HOOKS, {"metadata": {"labels": {"a": "b"}}}, "metadata")


def test_a_webhook_makes_no_other_secret(held: Held) -> None:
    token = {"kubernetes.io/service-account.name": f"{FULL}-agent"}
    kind = "kubernetes.io/service-account-token"
    refused: tuple[dict[str, Any], ...] = (
        {"metadata": {"name": "another"}, "type": "Opaque"},
        {"metadata": {"name": f"{FULL}-webhook", "annotations": token}, "type": kind},
    )
    for body in refused:
        held.refuses(partial(held.accounts["webhook"].api.create, SECRETS, body), "and no other")
