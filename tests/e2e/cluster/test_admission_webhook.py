"""What a real API server lets in: our webhook before it, and its own quota beside."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from gpumanager.names import ANNOTATION_INVENTORY, VCORE, VMEMORY
from gpumanager.units import CORES_PER_GPU, blocks
from tests.e2e.cluster.api_client import ApiError
from tests.e2e.cluster.real_scheduler import RealScheduler
from tests.e2e.cluster.real_webhook import RealWebhook
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import NODE_PATH, RealNode
from tests.e2e.node.real_pods import PODS, RealPods, container, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

FIRST_AS_DOCUMENTED: Final = 28
"""Conditions of a webhook, by which pods without GPUs are not sent to it."""
INVALID: Final = 422
FORBIDDEN: Final = 403
REFUSAL: Final = (
    f"container main (spec.containers[0]): {VCORE}: 150 is neither a share of one GPU (1 to 99) "
    "nor a number of whole GPUs (100 for each): write 100 or 200"
)
LIMITED: Final = "/api/v1/namespaces/limited"


@pytest.fixture(scope="module")
def webhook(scheduler: RealScheduler) -> Iterator[RealWebhook]:
    node = scheduler.node
    if node.minor < FIRST_AS_DOCUMENTED:
        pytest.skip(f"API server {node.version} knows no conditions of webhooks")
    wait_for(lambda: has_inventory(node), "the node says which GPUs it has")
    made = RealWebhook(node, scheduler.name)
    try:
        made.start()
        wait_for(lambda: refused(node), "the API server asks the webhook")
        yield made
    finally:
        made.stop()


def test_a_pod_is_completed_and_goes_to_the_scheduler_for_gpus(
    webhook: RealWebhook, scheduler: RealScheduler, agent: RealAgent, pods: RealPods
) -> None:
    asked = container("main", "sleep 600", 30, 0)
    del asked["resources"]["limits"][VMEMORY]

    uid = pods.create(pod("completed", asked))

    spec = scheduler.node.api.get(f"{PODS}/completed")["spec"]
    share = blocks(agent.machine.topology.gpus[0].memory) * 30 // CORES_PER_GPU
    assert spec["schedulerName"] == scheduler.name
    assert spec["containers"][0]["resources"]["limits"] == {VCORE: "30", VMEMORY: str(share)}
    assert {VCORE, VMEMORY} <= {one["key"] for one in spec["tolerations"]}
    pods.running("completed")
    assert [(one.cores, one.blocks) for one in agent.promised_to(uid)] == [(30, share)]


def test_what_could_never_run_is_refused_in_our_words(webhook: RealWebhook, node: RealNode) -> None:
    with pytest.raises(ApiError) as refusal:
        dry_run(node)

    assert refusal.value.status == INVALID
    assert REFUSAL in refusal.value.said


def test_without_the_webhook_pods_are_let_in_as_they_are(
    webhook: RealWebhook, node: RealNode
) -> None:
    webhook.replica.kill()
    try:
        let_in = dry_run(node)
    finally:
        webhook.replica.start()

    assert let_in["spec"]["schedulerName"] == "default-scheduler"
    wait_for(lambda: refused(node), "the API server asks the webhook again")


def test_a_resource_quota_counts_both_resources(node: RealNode) -> None:
    """There is no controller that would begin its count: that much the test does for it."""
    hard = {f"requests.{VCORE}": "100", f"requests.{VMEMORY}": "16"}
    node.api.create("/api/v1/namespaces", {"metadata": {"name": "limited"}})
    quota = node.api.create(
        f"{LIMITED}/resourcequotas", {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    )
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    node.api.ask("PUT", f"{LIMITED}/resourcequotas/gpus/status", quota | {"status": status})

    def create(name: str, cores: int, memory: int) -> None:
        asked = pod(name, container("main", "true", cores, memory), schedulerName="nobody")
        node.api.create(f"{LIMITED}/pods", asked)

    wait_for(lambda: lets(create, "first", 60, 8), "the quota is counted")
    with pytest.raises(ApiError) as too_many_cores:
        create("second", 60, 8)
    with pytest.raises(ApiError) as too_much_memory:
        create("third", 30, 9)
    create("fourth", 40, 8)

    assert {too_many_cores.value.status, too_much_memory.value.status} == {FORBIDDEN}
    assert f"exceeded quota: gpus, requested: requests.{VCORE}=60" in too_many_cores.value.said
    assert f"exceeded quota: gpus, requested: requests.{VMEMORY}=9" in too_much_memory.value.said


def lets(create: Any, *asked: Any) -> bool:
    """Whether the pod is let in: what was only just counted may not be known yet."""
    try:
        create(*asked)
    except ApiError as error:
        if "status unknown for quota" not in error.said:
            raise
        return False
    return True


def has_inventory(node: RealNode) -> bool:
    return ANNOTATION_INVENTORY in node.api.get(NODE_PATH)["metadata"].get("annotations", {})


def dry_run(node: RealNode) -> dict[str, Any]:
    """A pod that could never run, as it would be stored. Raises ApiError."""
    asked = pod("never", container("main", "true", 150, 8))
    return dict(node.api.create(f"{PODS}?dryRun=All", asked))


def refused(node: RealNode) -> bool:
    try:
        dry_run(node)
    except ApiError as error:
        return error.status == INVALID
    return False
