"""A real kube-scheduler asks our extender: where pods go, and that no GPU is given away twice."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from gpumanager import __version__
from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_TIME,
)
from gpumanager.scheduler.scoring.unschedulable_reasons import SCATTERED
from tests.e2e.cluster.api_client import silent
from tests.e2e.cluster.cluster_nodes import node_object
from tests.e2e.cluster.cluster_view import NODES, ClusterView
from tests.e2e.cluster.gpu_accounts import Accounts
from tests.e2e.cluster.real_scheduler import RealScheduler, role
from tests.e2e.cluster.replica import Replica
from tests.e2e.cluster.service_door import https
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import NODE, RealNode
from tests.e2e.node.real_pods import PODS, RealPods, container, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

PRIORITIES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
RANKS: Final = {"urgent": 1000, "usual": 10}
MACHINES: Final = {"t4": "t4x4", "v100": "v100x4-nvlink"}
BURST: Final = 40
Record = Callable[[str, object], None]


@pytest.fixture
def cluster(
    node: RealNode, agent: RealAgent, scheduler: RealScheduler, pods: RealPods
) -> ClusterView:
    return ClusterView(node.api, scheduler.name, pods)


@pytest.fixture
def more_nodes(node: RealNode, pods: RealPods) -> Iterator[None]:
    """Beside the real one."""
    for name, machine in MACHINES.items():
        node.api.create(NODES, node_object(name, machine))
    try:
        yield
        pods.delete()
    finally:
        for name in MACHINES:
            node.api.delete(f"{NODES}/{name}", 0)


@pytest.fixture(scope="module")
def ranks(scheduler: RealScheduler) -> Iterator[None]:
    """Priorities, once pods can have them: what was only just created may not be known yet."""
    api = scheduler.node.api
    for name, value in RANKS.items():
        api.create(PRIORITIES, {"metadata": {"name": name}, "value": value})
    for name in RANKS:
        tried = pod(f"tried-{name}", container("main", "true", 1, 1), priorityClassName=name)
        wait_for(partial(silent, partial(api.create, f"{PODS}?dryRun=All", tried)), name)
    yield
    for name in RANKS:
        api.delete(f"{PRIORITIES}/{name}", 0)


@pytest.fixture
def replicas(scheduler: RealScheduler) -> Iterator[tuple[Replica, Replica]]:
    """Two of the extender, of which the first leads, and may be killed."""
    yield scheduler.extender, scheduler.add_replica()
    scheduler.extender.start()
    scheduler.remove_replica()


def test_a_pod_gets_the_gpus_that_were_planned_when_it_was_bound(
    cluster: ClusterView, node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    # A static pod's container may outlive its mirror: its GPU is free for the extender, not for us.
    wait_for(lambda: not agent.promises(), "the pods before are forgotten")
    asked = [container("a", "sleep 600", 30, 8), container("b", "sleep 600", 200, 8)]

    def admitted() -> bool:
        pods.create(cluster.pod("planned", *asked))
        pods.running("planned")
        if not (seen := agent.saw_admission_of(pods.uid("planned"))):
            pods.delete("planned")
        return seen

    wait_for(admitted, "a pod whose plan the agent could read")

    uid = pods.uid("planned")
    said = assigned(node, "planned")
    planned = {name: one["gpus"] for name, one in plan(said).items()}
    granted = {one.pod.container: list(one.gpus) for one in agent.promised_to(uid) if one.pod}
    assert granted == planned, [one.why for one in agent.promised_to(uid)]
    minors = {gpu.uuid: gpu.minor for gpu in agent.machine.topology.gpus}
    for place, name in enumerate(("a", "b")):
        words = said[f"{ANNOTATION_PREDICATE_GPU_INDEX}{place}"].split(",")
        assert sorted(map(int, words)) == sorted(minors[uuid] for uuid in granted[name])
    assert said[ANNOTATION_PREDICATE_NODE] == NODE
    assert int(said[ANNOTATION_PREDICATE_TIME]) > 0


def test_what_is_written_at_bind_comes_with_the_node_in_one_write(
    cluster: ClusterView, node: RealNode, more_nodes: None
) -> None:
    """On a node without an agent; of all versions of the pod the first with a node has it."""
    before = node.api.get(PODS)["metadata"]["resourceVersion"]
    cluster.pods.create(cluster.pod("written", container("main", "true", 50, 8), affinity=on("t4")))
    wait_for(lambda: cluster.node_of("written"), "it is bound")

    def first() -> dict[str, Any] | None:
        versions = (one["object"] for one in node.api.changes(PODS, before))
        return next((one for one in versions if one["spec"].get("nodeName")), None)

    said = wait_for(first, "a version with a node")["metadata"]["annotations"]
    assert [uuid[:6] for uuid in plan(said)["main"]["gpus"]] == ["GPU-t4"]
    assert said[ANNOTATION_PREDICATE_NODE] == "t4"
    assert said[ANNOTATION_GPU_ASSIGNED] == "false"


def test_gpu_admission_s_paths_are_answered(cluster: ClusterView, scheduler: RealScheduler) -> None:
    endpoint = scheduler.extender.endpoint
    asking = cluster.pod("asked", container("main", "true", 30, 8))
    asking["metadata"]["uid"] = "asked"

    body = json.dumps({"Pod": asking, "NodeNames": [NODE, "nowhere"]}).encode()
    path, ours = "/scheduler/predicates", scheduler.certificate
    status, text = https(endpoint, "POST", path, body, ours=ours)

    assert https(endpoint, "POST", path, body)[0] == 403
    assert (status, json.loads(text)["NodeNames"]) == (200, [NODE])
    assert json.loads(text)["FailedNodes"].keys() == {"nowhere"}
    assert https(endpoint, "GET", "/version") == (200, f"{__version__}\n")


def test_pods_without_gpus_do_not_need_the_extender(
    cluster: ClusterView, scheduler: RealScheduler, more_nodes: None
) -> None:
    scheduler.extender.kill()
    try:
        plain = {"name": "main", "image": "local"}
        cluster.pods.create(cluster.pod("plain", plain, affinity=on("t4")))

        assert wait_for(lambda: cluster.node_of("plain"), "it is bound") == "t4"
    finally:
        scheduler.extender.start()


def test_a_burst_is_placed_without_booking_twice_while_the_extender_is_killed(
    cluster: ClusterView,
    scheduler: RealScheduler,
    agent: RealAgent,
    more_nodes: None,
    record_property: Record,
) -> None:
    described = cluster.burst("burst", BURST)
    cluster.create(described[: BURST // 2])
    cluster.some_are_bound(BURST // 5)
    scheduler.extender.kill()
    cluster.create(described[BURST // 2 :])
    scheduler.extender.start()

    found = cluster.settled()

    record_property("measured", figures(found))
    assert not found.overbooked
    assert len(found.bound) + len(found.waiting) == BURST
    assert found.waiting
    for name in found.waiting:
        assert cluster.told(name, "0/3 nodes are available: ")
    agent.wait_until_nothing_is_promised_twice()


def test_when_the_leader_is_killed_the_other_replica_binds_what_is_left(
    cluster: ClusterView,
    agent: RealAgent,
    more_nodes: None,
    replicas: tuple[Replica, Replica],
    record_property: Record,
) -> None:
    first, second = replicas
    wait_for(lambda: (role(first), role(second)) == ("leader", "standby"), "both say what they are")

    described = cluster.burst("handed", BURST)
    cluster.create(described[: BURST // 2])
    cluster.some_are_bound(BURST // 5)
    first.kill()
    cluster.create(described[BURST // 2 :])

    found = cluster.settled()

    record_property("measured", figures(found))
    wait_for(lambda: role(second) == "leader", "the other leads")
    assert not found.overbooked
    assert len(found.bound) + len(found.waiting) == BURST
    agent.wait_until_nothing_is_promised_twice()


def test_a_pod_that_waits_takes_the_place_of_one_that_goes(
    cluster: ClusterView, node: RealNode, more_nodes: None
) -> None:
    """There were cores enough before, but of several GPUs: only the extender saw that."""

    def create(name: str) -> None:
        asked = container("main", "true", 60, 8)
        cluster.pods.create(cluster.pod(name, asked, affinity=on("t4")))

    for n in range(4):
        create(f"there-{n}")
        wait_for(partial(cluster.node_of, f"there-{n}"), "it is bound")
    create("waits")
    assert cluster.told("waits", f"1 {SCATTERED}")

    node.api.delete(f"{PODS}/there-2", 0)

    assert wait_for(lambda: cluster.node_of("waits"), "it has found its place") == "t4"


def test_who_is_more_important_takes_the_place_of_who_is_less(
    cluster: ClusterView, ranks: None, agent: RealAgent, pods: RealPods
) -> None:
    whole = 100 * len(agent.machine.topology.gpus)
    pods.create(cluster.pod("low", container("main", "sleep 600", whole, 8)))
    pods.running("low")

    asked = container("main", "sleep 600", 100, 8)
    uid = pods.create(cluster.pod("urgent", asked, priorityClassName="urgent"))

    pods.running("urgent")
    assert [one.cores for one in agent.promised_to(uid)] == [100]
    wait_for(lambda: not pods.exists("low"), "the other is gone")


@pytest.mark.usefixtures("more_nodes", "ranks")
def test_where_victims_lie_on_different_gpus_one_more_has_to_go(
    cluster: ClusterView, node: RealNode, pods: RealPods
) -> None:
    def create(name: str, cores: int, rank: str) -> None:
        asked = container("main", "sleep 600", cores, 8)
        pods.create(cluster.pod(name, asked, affinity=on("t4"), priorityClassName=rank))

    def said(name: str) -> dict[str, Any]:
        return dict(node.api.get(f"{PODS}/{name}")["metadata"])

    for n in range(8):
        create(f"half-{n}", 50, "" if n in {0, 2} else "usual")
        wait_for(partial(cluster.node_of, f"half-{n}"), "it is bound")
    (first,), (second,) = (plan(said(f"half-{n}")["annotations"])["main"]["gpus"] for n in (0, 2))
    assert first != second
    create("urgent", 100, "urgent")

    def going() -> set[str]:
        return {f"half-{n}" for n in range(8) if "deletionTimestamp" in said(f"half-{n}")}

    wait_for(lambda: len(going()) == 3, "three have to go")
    assert going() >= {"half-0", "half-2"}
    for name in going():
        node.api.delete(f"{PODS}/{name}", 0)
    assert wait_for(lambda: cluster.node_of("urgent"), "it has found its place") == "t4"


def assigned(node: RealNode, name: str) -> dict[str, str]:
    """The annotations, once the agent has said what the pod has."""

    def asked() -> dict[str, str] | None:
        said: dict[str, str] = node.api.get(f"{PODS}/{name}")["metadata"]["annotations"]
        return said if said[ANNOTATION_GPU_ASSIGNED] == "true" else None

    return wait_for(lambda: silent(asked), f"{name} has its GPUs")


def plan(said: dict[str, str]) -> dict[str, Any]:
    return dict(json.loads(said[ANNOTATION_PLAN])["containers"])


def on(node: str) -> dict[str, Any]:
    """A node affinity to one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def figures(found: Accounts) -> dict[str, int]:
    return {
        "bound": len(found.bound),
        "waiting": len(found.waiting),
        "on other GPUs than planned": len(found.elsewhere),
        "cores given": sum(found.cores.values()),
        "cores there": sum(cores for cores, _ in found.room.values()),
    }
