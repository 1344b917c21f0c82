"""The agent for claims and the webhook for the two lines, as `helm install` brings them.

Account, roles, DeviceClass and admission policies are what the chart renders; the API server, the
scheduler, the controllers of claims and the kubelet are real.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest

from gpumanager.names import LABEL_CLAIM_TEMPLATE, VCORE, VMEMORY
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import GIB
from tests.chart import helm_program
from tests.e2e.chart.real_chart import ChartedAgent
from tests.e2e.claims.charted_webhook import VALUES, ChartedWebhook
from tests.e2e.claims.claims_leftovers import nothing_is_left, wait_until_offered
from tests.e2e.claims.real_claims import (
    CLAIMS,
    CLASS,
    COLLECTOR,
    SLICES,
    TEMPLATES,
    RealClaims,
    allocated,
    claiming,
    claims_of,
    exactly,
    holder,
)
from tests.e2e.cluster.api_client import ApiError, Object
from tests.e2e.cluster.bound_account import BoundAccount
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import NODE, RealNode
from tests.e2e.node.real_pods import PODS, RealPods, container, gpus_seen, pod

pytest_plugins = ["tests.e2e.node_fixtures", "tests.e2e.claims.claims_fixtures"]
pytestmark = pytest.mark.e2e

WAITS: Final = "cuda-play query; echo ready; sleep 600"
ACCOUNT: Final = "gpu-manager-agent"
ELSEWHERE: Final = "elsewhere"
NODES: Final = "/api/v1/nodes"
NAMESPACE: Final = "/api/v1/namespaces/default"
INTERFACE: Final = "tencent.com/gpu-interface"
MERGE: Final = "merge-patch+json"
FORBIDDEN: Final = 403
POLICY: Final = "ValidatingAdmissionPolicy"
ROLLOUTS: Final = 4
REPLICAS: Final = 4
NO_FAILURE: Final = {"FailedScheduling", "MissingClusterDNS"}
NOT_KNOWN_YET: Final = "no relationship found between node"
"""The API server does not let the kubelet read a claim: its authorizer has not seen the pod yet."""
"""A claim of a template is made after its pod, and the scheduler tells that; there is no DNS."""


@pytest.fixture(scope="module")
def charted(
    stage: tuple[RealNode, RealAgent, SimulatedGpus],
    agent_of_claims: RealAgent,
    claims_gpus: SimulatedGpus,
) -> Iterator[ChartedAgent]:
    """The chart's agent, installed and ready, in the place of the host's own."""
    node = stage[0]
    if why := node.obstacle_to_claims:
        pytest.skip(why)
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    node.start_controllers(COLLECTOR)
    values: dict[str, dict[str, Any]] = {"agent": {"interface": "claims"}, "webhook": VALUES}
    made = ChartedAgent(node, agent_of_claims.disk, values)
    made.prepare()
    made.install()
    try:
        made.start()
        yield made
    finally:
        made.stop()
        made.release.uninstall("--ignore-not-found")


@pytest.fixture
def claims(charted: ChartedAgent, claims_node: RealNode, pods: RealPods) -> Iterator[RealClaims]:
    with claims_of(claims_node.api, pods) as made:
        wait_until_offered(made)
        yield made


def test_a_pod_with_a_claim_runs_with_its_limit_and_goes_on_while_the_agent_is_replaced(
    charted: ChartedAgent, claims: RealClaims, pods: RealPods
) -> None:
    source = claims.template("share", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    uid = pods.create(claiming("before", source, holder("main", WAITS)))
    said = pods.printed("before", "main", "ready")
    (given,) = allocated(claims.of_pod(uid))
    assert gpus_seen(said) == {claims.uuid(given.device): 2 * GIB}

    charted.stop()
    charted.start()

    pods.create(claiming("after", source, holder("main", WAITS)))
    assert [*gpus_seen(pods.printed("after", "main", "ready")).values()] == [2 * GIB]
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0
    pods.delete("before")
    assert [line for line in charted.log().splitlines() if "orbidden" in line] == []


def test_nothing_fails_and_nothing_is_left_while_agents_hand_over(
    charted: ChartedAgent,
    agent_of_claims: RealAgent,
    claims: RealClaims,
    pods: RealPods,
    record_property: Callable[[str, object], None],
) -> None:
    """Pods come and go all the time, while two rolling updates start an agent beside the other."""

    def roll_twice() -> None:
        charted.roll()
        charted.roll()

    source = claims.template("share", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    before = pods.create(claiming("before", source, holder("main", WAITS)))
    pods.printed("before", "main", "ready")
    granted = agent_of_claims.promised_to(before)
    serial, failed, longest = 0, set[tuple[str, str]](), 0.0

    with ThreadPoolExecutor(1) as beside:
        rolled = beside.submit(roll_twice)
        while not rolled.done():
            uids, began = {}, time.monotonic()
            for _ in range(3):
                serial += 1
                name = f"while-{serial}"
                uids[name] = pods.create(claiming(name, source, holder("main", WAITS)))
            for name, uid in uids.items():
                said = pods.printed(name, "main", "ready")
                assert [*gpus_seen(said).values()] == [2 * GIB]
                failed |= {
                    (reason, text)
                    for reason, text in pods.warned(uid)
                    if reason not in NO_FAILURE and NOT_KNOWN_YET not in text
                }
            longest = max(longest, time.monotonic() - began)
            pods.delete(*uids)
        rolled.result()

    record_property("measured", f"{serial} pods, three at once run after {longest:.1f} s at most")
    assert failed == set()
    assert serial > 0
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0
    assert agent_of_claims.promised_to(before) == granted
    pods.delete()
    nothing_is_left(agent_of_claims, claims)


def test_a_pod_with_whole_gpus_in_one_line_has_them(
    charted: ChartedAgent, claims: RealClaims, claims_gpus: SimulatedGpus, pods: RealPods
) -> None:
    described = pod("whole", container("main", WAITS, 0, 0))
    described["spec"]["containers"][0]["resources"] = {"limits": {"tencent.com/gpu": "1"}}

    uid = pods.create(described)

    said = pods.printed("whole", "main", "ready")
    (given,) = allocated(claims.of_pod(uid))
    whole = claims_gpus.machine.topology.gpus[0].memory
    assert gpus_seen(said) == {claims.uuid(given.device): whole}
    assert given.consumed["cores"] == 100
    pods.delete("whole")
    wait_for(lambda: not claims.all(), "the claim that the scheduler made goes with the pod")


@pytest.fixture
def elsewhere(charted: ChartedAgent, claims_node: RealNode) -> Iterator[BoundAccount]:
    """The agent's account, in a pod on another node."""
    claims_node.api.create(NODES, {"metadata": {"name": ELSEWHERE}})
    made = BoundAccount(claims_node, ACCOUNT, ELSEWHERE)
    yield made
    made.remove()
    claims_node.api.delete(f"{SLICES}/{ELSEWHERE}", 0)
    claims_node.api.delete(f"{NODES}/{ELSEWHERE}", 0)


def a_slice(name: str = ELSEWHERE, **changed: Any) -> dict[str, Any]:
    pool = {"name": ELSEWHERE, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLASS, "nodeName": ELSEWHERE, "pool": pool, "devices": []}
    return {"metadata": {"name": name}, "spec": spec | changed}


def test_an_agent_writes_the_slice_of_its_own_node_and_driver_alone(
    elsewhere: BoundAccount, claims: RealClaims
) -> None:
    api, own = elsewhere.api, f"{SLICES}/{ELSEWHERE}"
    (other,) = claims.slices()
    others = f"{SLICES}/{other['metadata']['name']}"
    device = {"spec": {"devices": [{"name": "made-up"}]}}
    foreign_pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}

    api.create(SLICES, a_slice())
    api.ask("PATCH", own, device, MERGE)

    refuses(partial(api.create, SLICES, a_slice("a", nodeName=NODE)), POLICY)
    refuses(partial(api.create, SLICES, a_slice("b", driver="other.example")), POLICY)
    refuses(partial(api.create, SLICES, a_slice("c", pool=foreign_pool)), POLICY)
    refuses(partial(api.ask, "PATCH", others, device, MERGE), POLICY)
    refuses(partial(api.ask, "DELETE", others), "cannot delete resource")
    assert {one["metadata"]["name"] for one in claims.slices()} == {
        ELSEWHERE,
        other["metadata"]["name"],
    }


def test_an_agent_reads_claims_and_writes_none(
    elsewhere: BoundAccount, claims: RealClaims, pods: RealPods
) -> None:
    """Not even the status of devices, for which a driver would need `associated-node:update`."""
    claims.claim("read", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    device = {"driver": CLASS, "pool": ELSEWHERE, "device": "made-up"}
    path, api = f"{CLAIMS}/read", elsewhere.api

    assert api.get(path)["metadata"]["name"] == "read"
    refuses(partial(api.ask, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE), "cannot")
    status = {"status": {"devices": [device]}}
    refuses(partial(api.ask, "PATCH", f"{path}/status", status, MERGE), "cannot")


def refuses(what: Callable[[], object], because: str) -> None:
    with pytest.raises(ApiError) as refused:
        what()
    assert refused.value.status in {FORBIDDEN, 422}, refused.value
    assert because in refused.value.said


@pytest.fixture(scope="module")
def webhook(
    charted: ChartedAgent, stage: tuple[RealNode, RealAgent, SimulatedGpus]
) -> Iterator[ChartedWebhook]:
    """Pods of the namespace `default` get claims."""
    node = stage[0]
    made = ChartedWebhook(node, charted.release)
    label(node, "claims")
    try:
        made.start()
        wait_for(lambda: "resourceClaims" in dry_run(node)["spec"], "pods are changed")
        yield made
    finally:
        label(node, None)
        made.stop()


def label(node: RealNode, said: str | None) -> None:
    node.api.ask("PATCH", NAMESPACE, {"metadata": {"labels": {INTERFACE: said}}}, MERGE)


def two_lines(name: str, cores: int = 30, blocks: int = 8) -> dict[str, Any]:
    return pod(name, container("main", WAITS, cores, blocks))


def dry_run(node: RealNode) -> dict[str, Any]:
    return dict(node.api.create(f"{PODS}?dryRun=All", two_lines("dry")))


def templates(node: RealNode) -> list[Object]:
    """Those that were made for pods."""
    return [
        one
        for one in node.api.get(TEMPLATES)["items"]
        if one["metadata"]["name"].startswith("vcuda-")
    ]


def test_a_pod_with_the_two_lines_runs_by_a_claim(
    webhook: ChartedWebhook, claims: RealClaims, pods: RealPods
) -> None:
    uid = pods.create(two_lines("converted"))

    said = pods.printed("converted", "main", "ready")
    (given,) = allocated(claims.of_pod(uid))
    assert given.consumed == {"cores": 30, "memory": 2 * GIB}
    assert gpus_seen(said) == {claims.uuid(given.device): 2 * GIB}
    limits = pods.described("converted")["spec"]["containers"][0]["resources"].get("limits", {})
    assert not {VCORE, VMEMORY} & limits.keys()


def test_nothing_is_made_for_pods_that_are_refused_or_only_tried(
    webhook: ChartedWebhook, claims: RealClaims, claims_node: RealNode, pods: RealPods
) -> None:
    before = {one["metadata"]["name"] for one in templates(claims_node)}
    tried = claims_node.api.create(f"{PODS}?dryRun=All", two_lines("tried", 31))

    with pytest.raises(ApiError) as refused:
        claims_node.api.create(PODS, two_lines("never", 150))

    assert "150 is neither a share of one GPU" in refused.value.said
    pods.create(two_lines("marker", 32))
    pods.printed("marker", "main", "ready")
    made = {one["metadata"]["name"] for one in templates(claims_node)} - before
    assert tried["metadata"]["labels"][LABEL_CLAIM_TEMPLATE] not in made
    assert len(made) == 1


@pytest.mark.parametrize(
    ("parameters", "because"),
    [
        ({"coreLimits": 50}, "coreLimits: unknown field; did you mean coreLimit?"),
        ({"coreLimit": 1000}, "write 1 to 100"),
    ],
)
def test_a_claim_with_parameters_that_no_pod_could_start_with_is_refused(
    webhook: ChartedWebhook, claims: RealClaims, parameters: Object, because: str
) -> None:
    request = exactly("gpu", CLASS, cores=30, memory="2Gi")

    with pytest.raises(ApiError) as refused:
        claims.template("wrong", request, config=[vcuda_config(parameters)])

    assert because in refused.value.said
    claims.template("right", request, config=[vcuda_config({"coreLimit": 50})])


def vcuda_config(fields: Object) -> Object:
    typed = {"apiVersion": f"{CLASS}/v1alpha1", "kind": "VcudaConfig", **fields}
    return {"opaque": {"driver": CLASS, "parameters": typed}}


def test_rollouts_leave_no_template_and_no_claim(
    webhook: ChartedWebhook, claims: RealClaims, claims_node: RealNode, pods: RealPods
) -> None:
    former: list[str] = []
    for rollout in range(ROLLOUTS):
        names = [f"rollout-{rollout}-{n}" for n in range(REPLICAS)]
        for name in names:
            pods.create(two_lines(name, 10 + rollout))
        for name in names:
            assert [*gpus_seen(pods.printed(name, "main", "ready")).values()] == [2 * GIB]
        if former:
            pods.delete(*former)
        former = names
    pods.delete()

    wait_for(lambda: not claims.all(), "no claim is left")
    wait_for(lambda: not templates(claims_node), "no template is left")
