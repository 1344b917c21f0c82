"""A real kube-scheduler asks our extender: where pods go, and that no GPU is given away twice."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest
from api_client import silent
from cluster_nodes import node_object
from gpu_accounts import Accounts, accounts
from node_process import wait_for
from real_agent import RealAgent
from real_node import NODE, RealNode
from real_pods import PODS, RealPods, container, pod
from real_scheduler import RealScheduler, role
from replica import Replica
from service_door import https

from gpumanager import __version__
from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_TIME,
)
from gpumanager.scheduler.phrases import SCATTERED

pytest_plugins = ["node_fixtures"]
pytestmark = pytest.mark.e2e

NODES: Final = "/api/v1/nodes"
PRIORITIES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
MACHINES: Final = {"t4": "t4x4", "v100": "v100x4-nvlink"}
SIZES: Final = ((50, 16), (30, 8), (100, 0), (20, 8), (60, 24))
BURST: Final = 40
CLIENTS: Final = 16
Record = Callable[[str, object], None]


class Cluster:
    """The node and what is made beside it, as one sees it who asks the API server."""

    def __init__(self, node: RealNode, scheduler: RealScheduler, pods: RealPods) -> None:
        self._api = node.api
        self.scheduler = scheduler
        self.pods = pods

    def pod(self, name: str, *containers: object, **fields: Any) -> dict[str, Any]:
        return pod(name, *containers, schedulerName=self.scheduler.name, **fields)

    def burst(self, name: str) -> list[dict[str, Any]]:
        """More than there is room for."""
        return [
            self.pod(f"{name}-{n}", container("main", "sleep 600", *SIZES[n % len(SIZES)]))
            for n in range(BURST)
        ]

    def create(self, described: list[dict[str, Any]]) -> None:
        """All at once."""
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(self.pods.create, described))

    def accounts(self) -> Accounts:
        """Now; of all pods of the test."""
        return accounts(self._api.get(NODES)["items"], self._api.get(PODS)["items"])

    def node_of(self, name: str) -> str:
        """Empty while it waits."""
        return str(self._api.get(f"{PODS}/{name}")["spec"].get("nodeName", ""))

    def some_are_bound(self, least: int) -> None:
        wait_for(lambda: len(self.accounts().bound) >= least, f"{least} pods are bound")

    def settled(self) -> Accounts:
        """Once nobody waits for whom there is room, and the node has said what it gave."""

        def asked() -> Accounts | None:
            now = silent(self.accounts)
            return now if now and not now.overlooked and self._all_given() else None

        return wait_for(asked, "everybody for whom there is room is bound, and runs")

    def _all_given(self) -> bool:
        on_node = [
            one for one in self._api.get(PODS)["items"] if one["spec"].get("nodeName") == NODE
        ]
        said = (one["metadata"]["annotations"] for one in on_node)
        return all(one[ANNOTATION_GPU_ASSIGNED] == "true" for one in said)

    def why_it_waits(self, name: str) -> str:
        """The scheduler's own words in the pod's status."""

        def asked() -> str:
            conditions = self.pods.status(name).get("conditions", [])
            found = (one.get("message", "") for one in conditions if one["type"] == "PodScheduled")
            return next(found, "")

        return wait_for(asked, f"it is said why {name} waits")


@pytest.fixture
def cluster(node: RealNode, agent: RealAgent, scheduler: RealScheduler, pods: RealPods) -> Cluster:
    return Cluster(node, scheduler, pods)


@pytest.fixture
def more_nodes(node: RealNode, pods: RealPods) -> Iterator[None]:
    """Beside the real one."""
    for name, machine in MACHINES.items():
        node.api.create(NODES, node_object(name, machine))
    yield
    pods.delete()
    for name in MACHINES:
        node.api.delete(f"{NODES}/{name}", 0)


@pytest.fixture
def second(cluster: Cluster) -> Iterator[Replica]:
    """Another replica of the extender."""
    yield cluster.scheduler.add_replica()
    cluster.scheduler.extender.start()
    cluster.scheduler.remove_replica()


def test_a_pod_gets_the_gpus_that_were_planned_when_it_was_bound(
    cluster: Cluster, node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    asked = [container("a", "sleep 600", 30, 8), container("b", "sleep 600", 200, 0)]
    uid = pods.create(cluster.pod("planned", *asked))

    pods.running("planned")

    said = assigned(node, "planned")
    planned = {name: one["gpus"] for name, one in plan(said).items()}
    granted = {one.pod.container: list(one.gpus) for one in agent.promised_to(uid) if one.pod}
    assert granted == planned
    minors = {gpu.uuid: gpu.minor for gpu in agent.machine.topology.gpus}
    for place, name in enumerate(("a", "b")):
        words = said[f"{ANNOTATION_PREDICATE_GPU_INDEX}{place}"].split(",")
        assert sorted(map(int, words)) == sorted(minors[uuid] for uuid in granted[name])
    assert said[ANNOTATION_PREDICATE_NODE] == NODE
    assert int(said[ANNOTATION_PREDICATE_TIME]) > 0


def test_what_is_written_at_bind_comes_with_the_node_in_one_write(
    cluster: Cluster, node: RealNode, more_nodes: None
) -> None:
    """On a node without an agent nobody else writes: the pod's first version with a node has it."""
    cluster.pods.create(cluster.pod("written", container("main", "true", 50, 8), affinity=on("t4")))

    def bound() -> dict[str, Any] | None:
        found: dict[str, Any] = node.api.get(f"{PODS}/written")
        return found if found["spec"].get("nodeName") else None

    said = wait_for(bound, "it is bound")["metadata"]["annotations"]

    assert [uuid[:6] for uuid in plan(said)["main"]["gpus"]] == ["GPU-t4"]
    assert said[ANNOTATION_PREDICATE_NODE] == "t4"
    assert said[ANNOTATION_GPU_ASSIGNED] == "false"


def test_gpu_admission_s_paths_are_answered(cluster: Cluster) -> None:
    endpoint = cluster.scheduler.extender.endpoint
    asking = cluster.pod("asked", container("main", "true", 30, 8))
    asking["metadata"]["uid"] = "asked"

    arguments = {"Pod": asking, "NodeNames": [NODE, "nowhere"]}
    status, text = https(endpoint, "POST", "/scheduler/predicates", json.dumps(arguments).encode())

    assert (status, json.loads(text)["NodeNames"]) == (200, [NODE])
    assert json.loads(text)["FailedNodes"].keys() == {"nowhere"}
    assert https(endpoint, "GET", "/version") == (200, f"{__version__}\n")


def test_a_burst_is_placed_without_booking_twice_while_the_extender_is_killed(
    cluster: Cluster, agent: RealAgent, more_nodes: None, record_property: Record
) -> None:
    described = cluster.burst("burst")
    cluster.create(described[: BURST // 2])
    cluster.some_are_bound(BURST // 5)
    cluster.scheduler.extender.kill()
    cluster.create(described[BURST // 2 :])
    cluster.scheduler.extender.start()

    found = cluster.settled()

    record_property("measured", figures(found))
    assert not found.overbooked
    assert len(found.bound) + len(found.waiting) == BURST
    assert found.waiting
    for name in found.waiting:
        assert "0/3 nodes are available: " in cluster.why_it_waits(name)
    assert within_what_there_is(agent)


def test_when_the_leader_is_killed_the_other_replica_binds_what_is_left(
    cluster: Cluster, agent: RealAgent, more_nodes: None, second: Replica, record_property: Record
) -> None:
    first = cluster.scheduler.extender
    assert (role(first), role(second)) == ("leader", "standby")

    described = cluster.burst("handed")
    cluster.create(described[: BURST // 2])
    cluster.some_are_bound(BURST // 5)
    first.kill()
    cluster.create(described[BURST // 2 :])

    found = cluster.settled()

    record_property("measured", figures(found))
    assert role(second) == "leader"
    assert not found.overbooked
    assert len(found.bound) + len(found.waiting) == BURST
    assert within_what_there_is(agent)


def test_a_pod_that_waits_takes_the_place_of_one_that_goes(
    cluster: Cluster, node: RealNode, more_nodes: None
) -> None:
    """There were cores enough before, but of several GPUs: only the extender saw that."""

    def create(name: str) -> None:
        asked = container("main", "true", 60, 8)
        cluster.pods.create(cluster.pod(name, asked, affinity=on("t4")))

    for n in range(4):
        create(f"there-{n}")
        wait_for(partial(cluster.node_of, f"there-{n}"), "it is bound")
    create("waits")
    assert f"1 {SCATTERED}" in cluster.why_it_waits("waits")

    node.api.delete(f"{PODS}/there-2", 0)

    assert wait_for(lambda: cluster.node_of("waits"), "it has found its place") == "t4"


def test_who_is_more_important_takes_the_place_of_who_is_less(
    cluster: Cluster, node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    whole = 100 * len(agent.machine.topology.gpus)
    node.api.create(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 1000})
    pods.create(cluster.pod("low", container("main", "sleep 600", whole, 0)))
    pods.running("low")

    urgent = cluster.pod("urgent", container("main", "sleep 600", 100, 0))
    uid = pods.create(urgent | {"spec": urgent["spec"] | {"priorityClassName": "urgent"}})

    pods.running("urgent")
    node.api.delete(f"{PRIORITIES}/urgent", 0)
    assert [one.cores for one in agent.promised_to(uid)] == [100]
    wait_for(lambda: not pods.exists("low"), "the other is gone")


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


def within_what_there_is(agent: RealAgent) -> bool:
    """By the node's own journal: no device twice."""
    held = [name for one in agent.promises() for name in (*one.core_ids, *one.memory_ids)]
    return len(held) == len(set(held))


def figures(found: Accounts) -> dict[str, int]:
    return {
        "bound": len(found.bound),
        "waiting": len(found.waiting),
        "cores given": sum(found.cores.values()),
        "cores there": sum(cores for cores, _ in found.room.values()),
    }
