"""The node agent and a real kubelet, through the days of a node: starts, restarts, crashes."""

import pytest
from node_process import NotInTime, wait_for
from real_agent import RealAgent
from real_node import RealNode
from real_pods import RealPods, container, exit_codes, memory_seen, pod, states

from gpumanager.allocator.journal import Allocation, State
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import GIB, MIB

pytestmark = pytest.mark.e2e

WAITS = "cuda-play query; echo ready; sleep 600"


def test_the_capacity_of_the_gpus_appears_on_the_node(node: RealNode, agent: RealAgent) -> None:
    assert {name: node.capacity(name) for name in (VCORE, VMEMORY)} == agent.devices


def test_a_deleted_pod_frees_what_it_held(node: RealNode, agent: RealAgent, pods: RealPods) -> None:
    uid = pods.create(pod("first", container("main", "sleep 600", 800, 8)))
    pods.running("first")
    assert [one.cores for one in agent.promised_to(uid)] == [800]

    pods.delete("first")
    pods.create(pod("second", container("main", "sleep 600", 800, 8)))

    pods.running("second")
    wait_for(lambda: not agent.promised_to(uid), "the journal has forgotten the pod")


def test_a_restarted_kubelet_gets_its_resources_again_and_pods_go_on(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    uid = pods.create(pod("before", container("main", WAITS, 30, 4)))
    pods.running("before")
    promised = agent.promised_to(uid)
    registered = agent.log().count("kubelet was restarted")

    node.stop_kubelet()
    node.start_kubelet()

    wait_for(lambda: agent.log().count("kubelet was restarted") > registered, "it is noticed")
    agent.wait_until_advertised()
    after = pods.create(pod("after", container("main", WAITS, 30, 4)))
    pods.running("after")
    assert agent.promised_to(uid) == promised
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0
    assert [one.state for one in agent.promised_to(after)] == [State.SETTLED]


def test_a_restarted_agent_knows_what_it_promised(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    uid = pods.create(pod("before", container("main", WAITS, 60, 8)))
    pods.printed("before", "main", "ready")
    promised = agent.promised_to(uid)

    agent.stop()
    agent.start()

    agent.wait_until_advertised()
    beside = pods.create(pod("beside", container("main", WAITS, 60, 8)))
    pods.running("beside")
    assert agent.promised_to(uid) == promised
    assert not shared_ids(promised, agent.promised_to(beside))
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0


def test_an_agent_killed_between_allocate_and_prestart_fails_no_pod(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    def answered() -> tuple[Allocation, ...]:
        both = [one for one in agent.promised_to(uid) if one.core_ids and one.memory_ids]
        return tuple(one for one in both if one.state is State.ANSWERED)

    uid = pods.create(pod("orphan", container("main", WAITS, 20, 4)))
    promised = wait_for(answered, "both resources are answered")
    agent.kill()
    with_nobody = pods.wait("orphan", lambda s: bool(waiting(s)), "its container waits")
    assert with_nobody["phase"] == "Pending"

    agent.start()

    assert memory_seen(pods.printed("orphan", "main", "ready")) == GIB
    settled = agent.promised_to(uid)
    assert [one.state for one in settled] == [State.SETTLED]
    assert [one.allocation for one in settled] == [one.allocation for one in promised]


def test_a_container_that_starts_again_has_the_same_limits(
    agent: RealAgent, pods: RealPods
) -> None:
    """The kubelet then calls PreStartContainer alone."""
    again = container("main", "cuda-play query; sleep 1; exit 1", 20, 4)
    uid = pods.create(pod("again", again, restartPolicy="OnFailure"))
    first = pods.printed("again", "main", "free of")

    second = wait_for(lambda: pods.log("again", "main", attempt=1), "it was started again")

    assert memory_seen(first) == GIB
    assert second == first
    assert len(agent.promised_to(uid)) == 1


def test_an_init_container_hands_its_devices_on(agent: RealAgent, pods: RealPods) -> None:
    uid = pods.create(
        pod(
            "two-steps",
            container("main", "cuda-play query; sleep 600", 40, 16),
            container("beside", "cuda-play query; sleep 600", 10, 3),
            initContainers=[container("first", "cuda-play query", 40, 16)],
        )
    )
    status = pods.running("two-steps")

    assert exit_codes(status) == {"first": 0}
    assert memory_seen(pods.log("two-steps", "first")) == 4 * GIB
    assert memory_seen(pods.printed("two-steps", "main", "free of")) == 4 * GIB
    assert memory_seen(pods.printed("two-steps", "beside", "free of")) == 768 * MIB
    assert {one.core_ids for one in agent.promised_to(uid)} == {
        one.core_ids for one in agent.promised_to(uid) if one.pod and one.pod.container != "first"
    }


def test_a_sidecar_keeps_limits_of_its_own(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    if node.minor < FIRST_WITH_SIDECARS:
        pytest.skip(f"kubelet {node.version} has no sidecars")
    sidecar = container("side", "cuda-play query; sleep 600", 10, 3, restartPolicy="Always")
    uid = pods.create(
        pod(
            "accompanied",
            container("main", "cuda-play query; sleep 2", 20, 4),
            initContainers=[sidecar, container("first", "cuda-play query", 20, 4)],
        )
    )

    pods.ended("accompanied")

    assert memory_seen(pods.log("accompanied", "side")) == 768 * MIB
    assert memory_seen(pods.log("accompanied", "first")) == GIB
    assert memory_seen(pods.log("accompanied", "main")) == GIB


FIRST_WITH_SIDECARS = 29


def shared_ids(some: tuple[Allocation, ...], others: tuple[Allocation, ...]) -> set[str]:
    """IDs that both hold."""
    first, second = (
        {name for one in held for name in (*one.core_ids, *one.memory_ids)}
        for held in (some, others)
    )
    return first & second


def waiting(status: object) -> list[str]:
    """Why containers are not started."""
    found = [one["waiting"].get("reason", "") for one in states(status) if "waiting" in one]
    return [reason for reason in found if reason not in {"", "ContainerCreating", "PodInitializing"}]
