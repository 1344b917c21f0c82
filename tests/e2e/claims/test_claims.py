"""Claims by the real scheduler, controllers and kubelet, as far as containers with their limits.

Who has what is judged by the claims and slices of the API server, and by the account that the
simulated GPUs keep themselves, which knows nothing of limits.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.names import PLUGINS_REGISTRY_PATH
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import GIB
from tests.e2e.claims.real_claims import CLASS, RealClaims, allocated, claiming, exactly, holder
from tests.e2e.node import node_runtime
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import FIRST_WITH_CDI, FIRST_WITH_SHARED_DEVICES, RealNode
from tests.e2e.node.real_pods import PODS as PODS_PATH
from tests.e2e.node.real_pods import (
    RealPods,
    memory_seen,
    mount_namespaces,
    uuids_seen,
)

pytest_plugins = ["tests.e2e.node_fixtures", "tests.e2e.claims.claims_fixtures"]
pytestmark = pytest.mark.e2e

BURST = 10
WAITS = "cuda-play query; echo ready; sleep 600"
NOT_PREPARED = "FailedPrepareDynamicResources"
HOLDING = "holding 3 GiB"
REFUSED = "CUDA_ERROR_OUT_OF_MEMORY"
HOLDS = "cuda-play query; cuda-play hold --memory 1GiB --seconds 600"


def held(gpus: SimulatedGpus, pods: RealPods, name: str) -> Counter[GpuUUID]:
    """What the containers of a pod hold on each GPU now, by the GPUs' own account. Bytes."""
    namespaces = mount_namespaces()
    own = {namespaces.get(one) for one in pods.container_ids(name).values()}
    found: Counter[GpuUUID] = Counter()
    for account in gpus.tenants():
        if account.mount_namespace in own:
            found.update({gpu: one.bytes_now for gpu, one in account.devices.items()})
    return +found


def test_where_the_runtime_ignores_cdi_no_gpu_is_offered_to_claims(
    node: RealNode, agent_of_claims: RealAgent
) -> None:
    """Pods would run without their GPU and their limit."""
    if node.minor < FIRST_WITH_SHARED_DEVICES or node_runtime.major() >= FIRST_WITH_CDI:
        pytest.skip("for a runtime that ignores CDI, where claims can be made")

    agent_of_claims.start(said="knows nothing of CDI devices")

    assert RealClaims(node.api).slices() == []
    assert list(Path(PLUGINS_REGISTRY_PATH).glob("*.sock")) == []


def test_a_claim_of_a_template_is_made_prepared_held_and_freed(
    claims: RealClaims, claims_agent: RealAgent, pods: RealPods
) -> None:
    source = claims.template("third", exactly("gpu", CLASS, cores=30, memory="2Gi"))

    uid = pods.create(claiming("one", source, holder("main", WAITS)))

    said = pods.printed("one", "main", "ready")
    (given,) = allocated(claims.of_pod(uid))
    assert given.consumed == {"cores": 30, "memory": 2 * GIB}
    assert uuids_seen(said) == [claims.uuid(given.device)]
    assert memory_seen(said) == 2 * GIB
    assert [one.cores for one in claims_agent.promised_to(uid)] == [30]

    pods.delete("one")

    wait_for(lambda: not claims.all(), "the claim is gone with its pod")
    assert claims_agent.promises() == ()


def test_two_containers_of_one_claim_have_one_budget(
    claims: RealClaims, pods: RealPods, claims_gpus: SimulatedGpus
) -> None:
    """Each alone could have what both want."""
    source = claims.template("common", exactly("gpu", CLASS, cores=40, memory="4Gi"))
    wants = "cuda-play hold --memory 3GiB --seconds 600"

    pods.create(claiming("both", source, holder("first", wants), holder("second", wants)))

    def outcomes() -> list[str]:
        logs = [pods.log("both", name) for name in ("first", "second")]
        found = [word for log in logs for word in (HOLDING, REFUSED) if word in log]
        return sorted(found) if len(found) == len(logs) else []

    assert wait_for(outcomes, "both have asked for memory") == [REFUSED, HOLDING]
    (taken,) = held(claims_gpus, pods, "both").values()
    assert 3 * GIB <= taken <= 4 * GIB


def test_containers_have_the_requests_that_they_name(claims: RealClaims, pods: RealPods) -> None:
    source = claims.template(
        "parts",
        exactly("small", CLASS, cores=10, memory="1Gi"),
        exactly("large", CLASS, cores=50, memory="4Gi"),
    )

    pods.create(claiming("parts", source, holder("a", WAITS, "small"), holder("b", WAITS, "large")))

    assert memory_seen(pods.printed("parts", "a", "ready")) == GIB
    assert memory_seen(pods.printed("parts", "b", "ready")) == 4 * GIB


def test_equal_pods_at_once_each_have_the_share_that_their_claim_says(
    claims: RealClaims, pods: RealPods, claims_gpus: SimulatedGpus
) -> None:
    source = claims.template("equal", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    described = [claiming(f"equal-{n}", source, holder("main", HOLDS)) for n in range(BURST)]

    with ThreadPoolExecutor(BURST) as clients:
        uids = list(clients.map(pods.create, described))

    said = [pods.printed(f"equal-{n}", "main", "holding 1 GiB") for n in range(BURST)]
    given = [claims.uuid(one.device) for uid in uids for one in allocated(claims.of_pod(uid))]
    assert [uuids_seen(one) for one in said] == [[gpu] for gpu in given]
    assert [memory_seen(one) for one in said] == [2 * GIB] * BURST
    for n, gpu in enumerate(given):
        (taken,) = held(claims_gpus, pods, f"equal-{n}").items()
        assert taken[0] == gpu
        assert GIB <= taken[1] <= 2 * GIB
    accounts = claims.accounts()
    assert accounts.overbooked == []
    assert sum(one["cores"] for one in accounts.held.values()) == 30 * BURST


def test_two_whole_gpus_are_two_that_nobody_else_has(
    claims: RealClaims, pods: RealPods, claims_gpus: SimulatedGpus
) -> None:
    shared = claims.template("share", exactly("gpu", CLASS, cores=10, memory="1Gi"))
    whole = claims.template("whole", exactly("gpus", CLASS, count=2))
    pods.create(claiming("beside", shared, holder("main", WAITS)))
    (other,) = uuids_seen(pods.printed("beside", "main", "ready"))

    uid = pods.create(claiming("whole", whole, holder("main", WAITS)))

    said = pods.printed("whole", "main", "ready")
    given = {claims.uuid(one.device) for one in allocated(claims.of_pod(uid))}
    assert sorted(uuids_seen(said)) == sorted(given)
    assert len(given - {other}) == 2
    assert memory_seen(said) == claims_gpus.machine.topology.gpus[0].memory
    assert claims.accounts().overbooked == []


def test_pods_go_on_without_the_agent_and_new_ones_wait_for_it(
    claims: RealClaims, claims_agent: RealAgent, pods: RealPods
) -> None:
    source = claims.template("patient", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    uid = pods.create(claiming("before", source, holder("main", WAITS)))
    pods.printed("before", "main", "ready")
    promised = claims_agent.promised_to(uid)
    claims_agent.kill()

    after = pods.create(claiming("after", source, holder("main", WAITS)))

    wait_for(lambda: NOT_PREPARED in pods.warnings(after), "the kubelet cannot prepare its claim")
    claims_agent.start()
    assert memory_seen(pods.printed("after", "main", "ready")) == 2 * GIB
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0
    assert claims_agent.promised_to(uid) == promised


def test_a_restarted_kubelet_finds_the_gpus_offered_again_and_pods_go_on(
    claims: RealClaims, claims_node: RealNode, claims_agent: RealAgent, pods: RealPods
) -> None:
    """A kubelet that starts deletes what its node offers."""
    source = claims.template("steady", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    uid = pods.create(claiming("before", source, holder("main", WAITS)))
    pods.printed("before", "main", "ready")
    promised = claims_agent.promised_to(uid)
    offered = {one["metadata"]["uid"] for one in claims.slices()}

    claims_node.stop_kubelet()
    claims_node.start_kubelet()

    wait_for(
        lambda: {one["metadata"]["uid"] for one in claims.slices()} - offered, "it is offered anew"
    )
    pods.create(claiming("after", source, holder("main", WAITS)))
    assert memory_seen(pods.printed("after", "main", "ready")) == 2 * GIB
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0
    assert claims_agent.promised_to(uid) == promised


def test_gpus_of_a_pod_deleted_by_force_while_the_agent_is_away_are_had_once_it_gave_them_back(
    claims: RealClaims, claims_node: RealNode, claims_agent: RealAgent, pods: RealPods
) -> None:
    """The claim is freed before the node knows of it, and the scheduler gives its GPUs again."""
    everything = claims.template("everything", exactly("gpus", CLASS, count=8))
    first = pods.create(claiming("first", everything, holder("main", WAITS)))
    pods.printed("first", "main", "ready")
    claims_agent.kill()
    claims_node.api.delete(f"{PODS_PATH}/first", 0)

    second = pods.create(claiming("second", everything, holder("main", WAITS)))

    wait_for(lambda: NOT_PREPARED in pods.warnings(second), "the kubelet cannot prepare its claim")
    assert [one.owner for one in claims_agent.promises()] == [first]
    claims_agent.start()
    assert len(uuids_seen(pods.printed("second", "main", "ready"))) == 8
    assert [one.owner for one in claims_agent.promises()] == [second]
