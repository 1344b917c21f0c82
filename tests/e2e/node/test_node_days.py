"""The node agent and a real kubelet, through the days of a node: starts, restarts, crashes."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumanager.grants.grant import Grant, State
from gpumanager.kubelet.checkpoint import read_checkpoint
from gpumanager.limits.pages.books import read_usage
from gpumanager.names import KUBELET_CHECKPOINT, VCORE, VMEMORY
from gpumanager.units import GIB, MIB
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import DEVICE_PLUGINS, RealNode
from tests.e2e.node.real_pods import RealPods, container, exit_codes, memory_seen, pod, states

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

RESTARTED = "kubelet restarted"
NUMA_NODES = Path("/sys/devices/system/node")
WAITS = "cuda-play query; echo ready; sleep 600"


def test_the_capacity_of_the_gpus_appears_on_the_node(node: RealNode, agent: RealAgent) -> None:
    assert {name: node.capacity(name) for name in (VCORE, VMEMORY)} == agent.devices


def test_the_doctor_finds_nothing_wrong(node: RealNode, agent: RealAgent, pods: RealPods) -> None:
    pods.create(pod("patient", container("main", "sleep 600", 30, 4)))
    pods.running("patient")

    status, found = agent.doctor()

    assert status == 0, found
    remarkable = {part for part, one in found.items() if one["verdict"] != "well"}
    assert remarkable <= {"processes"}, found  # with a pid namespace of the node's own
    assert found["kubelet"]["found"].endswith(f"version v{node.version}")
    assert "containerd" in found["container runtime"]["found"]
    assert found["cgroups"]["found"] in {"v1", "v2", "hybrid"}
    assert found["device checkpoint"]["found"].startswith("pods hold 30 of ")
    assert found["journal"]["found"].startswith("containers granted: ")


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
    promised = agent.named_for(uid)
    registered = agent.log().count(RESTARTED)

    node.stop_kubelet()
    node.start_kubelet()

    wait_for(lambda: agent.log().count(RESTARTED) > registered, "it is noticed")
    wait_for(lambda: admits(pods, beside={uid}), "the kubelet admits again")
    after = pods.create(pod("after", container("main", WAITS, 30, 4)))
    pods.running("after")
    assert agent.promised_to(uid) == promised
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0
    assert [one.state for one in agent.promised_to(after)] == [State.CONFIRMED]


def test_a_restarted_agent_knows_what_it_promised(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    uid = pods.create(pod("before", container("main", WAITS, 60, 8)))
    pods.printed("before", "main", "ready")
    promised = agent.named_for(uid)

    agent.stop()
    agent.start()

    wait_for(lambda: admits(pods, beside={uid}), "the kubelet admits again")
    beside = pods.create(pod("beside", container("main", WAITS, 60, 8)))
    pods.running("beside")
    assert agent.promised_to(uid) == promised
    assert not shared_ids(promised, agent.promised_to(beside))
    assert pods.running("before")["containerStatuses"][0]["restartCount"] == 0


def test_an_agent_killed_between_allocate_and_prestart_fails_no_pod(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    def answered() -> tuple[Grant, ...]:
        both = [one for one in agent.promised_to(uid) if one.ids.core_ids and one.ids.memory_ids]
        return tuple(one for one in both if one.state is State.ANSWERED)

    with node.part("containerd").paused():  # no container, hence no PreStart
        uid = pods.create(pod("orphan", container("main", WAITS, 20, 4)))
        promised = wait_for(answered, "both resources are answered")
        wait_for(lambda: resources_booked(uid) == 2, "the kubelet has both answers")
        agent.kill()
    with_nobody = pods.wait("orphan", lambda s: bool(waiting(s)), "its container waits")
    assert with_nobody["phase"] == "Pending"

    agent.start()

    assert memory_seen(pods.printed("orphan", "main", "ready")) == GIB
    settled = agent.promised_to(uid)
    assert [one.state for one in settled] == [State.CONFIRMED]
    assert [one.id for one in settled] == [one.id for one in promised]


def test_a_container_that_starts_again_has_the_same_limits(
    agent: RealAgent, pods: RealPods
) -> None:
    """The kubelet then calls PreStartContainer alone."""
    again = container("main", "cuda-play query; sleep 1; exit 1", 20, 4)
    uid = pods.create(pod("again", again, restartPolicy="OnFailure"))
    first = pods.printed("again", "main", "free of")

    second = pods.printed("again", "main", "free of", attempt=1)

    assert memory_seen(first) == GIB
    assert second == first
    assert len(agent.promised_to(uid)) == 1


def test_where_an_image_has_a_libcuda_of_its_own_there_is_the_shim(
    agent: RealAgent, pods: RealPods
) -> None:
    pods.create(
        pod(
            "compat",
            container("main", "LD_LIBRARY_PATH=/usr/local/cuda/compat cuda-play query", 20, 4),
        )
    )

    pods.ended("compat")

    assert memory_seen(pods.printed("compat", "main", "free of")) == GIB


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
    assert memory_seen(pods.printed("two-steps", "first", "free of")) == 4 * GIB
    assert memory_seen(pods.printed("two-steps", "main", "free of")) == 4 * GIB
    assert memory_seen(pods.printed("two-steps", "beside", "free of")) == 768 * MIB
    own = {one.pod.container: (one,) for one in agent.promised_to(uid) if one.pod}
    assert not shared_ids(own["main"], own["beside"])


def test_a_sidecar_keeps_limits_of_its_own(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    if node.minor < FIRST_WITH_SIDECARS:
        pytest.skip(f"kubelet {node.version} has no sidecars")
    sidecar = container("side", "cuda-play query; sleep 600", 10, 3, restartPolicy="Always")
    pods.create(
        pod(
            "accompanied",
            container("main", "cuda-play query; sleep 2", 20, 4),
            initContainers=[sidecar, container("first", "cuda-play query", 20, 4)],
        )
    )

    pods.ended("accompanied")

    assert memory_seen(pods.printed("accompanied", "side", "free of")) == 768 * MIB
    assert memory_seen(pods.printed("accompanied", "first", "free of")) == GIB
    assert memory_seen(pods.printed("accompanied", "main", "free of")) == GIB


def test_limits_hold_for_a_program_that_is_the_first_of_its_own_processes(
    agent: RealAgent, pods: RealPods
) -> None:
    """Every container has pids of its own; who calls is told by the kernel, in the agent's."""
    greedy = container("main", "exec cuda-play allocate --block 8MiB --until-refused", 25, 4)
    uid = pods.create(pod("alone", greedy))

    assert exit_codes(pods.ended("alone")) == {"main": 0}

    (own,) = agent.promised_to(uid)
    usage = read_usage(agent.directory_of(own)).devices[0]
    assert usage.peak <= usage.limit.memory == GIB
    assert usage.denied > 0


def test_a_static_pod_gets_limits_of_its_own(
    node: RealNode, agent: RealAgent, pods: RealPods
) -> None:
    """The API server learns of it only after its admission, under another UID."""
    described = pod("fixed", container("main", WAITS, 20, 4))
    described["metadata"]["annotations"] = {"tencent.com/vcuda-core-limit": "40"}
    manifest = node.static_pods / "fixed.json"
    manifest.write_text(json.dumps(described))
    try:
        (log,) = wait_for(lambda: pods.static_logs("fixed-node1", "main"), "it runs")
        wait_for(lambda: "ready" in log.read_text(), "it asked its device")
        uid = log.parts[-3].rpartition("_")[2]
        (own,) = agent.named_for(uid)
    finally:
        manifest.unlink()

    assert own.pod is not None
    assert own.pod.name == "fixed-node1"
    assert (own.state, own.cores, own.blocks, own.ceiling) == (State.CONFIRMED, 20, 4, 40)
    wait_for(lambda: not pods.static_is_there("fixed-node1"), "it has ended")


@pytest.mark.skipif(
    not NUMA_NODES.exists(),
    reason="without NUMA nodes a kubelet 1.37 with a topology policy panics (docs/kubelet.md)",
)
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_topology_policy_of_the_kubelet_keeps_both_resources_on_one_gpu(
    node: RealNode, agent: RealAgent, pods: RealPods, policy: str
) -> None:
    def restart(policy: str) -> None:
        node.stop_kubelet()
        node.start_kubelet(topologyManagerPolicy=policy)
        wait_for(lambda: admits(pods), "the kubelet admits again")

    restart(policy)
    try:
        uids = [pods.create(pod(f"aligned-{n}", container("main", WAITS, 30, 4))) for n in range(4)]
        for n, uid in enumerate(uids):
            assert memory_seen(pods.printed(f"aligned-{n}", "main", "ready")) == GIB
            (own,) = agent.promised_to(uid)
            gpus = {stem(one) for one in (*own.ids.core_ids, *own.ids.memory_ids)}
            assert len(gpus) == 1 or not agent.saw_admission_of(uid)
        assert any(map(agent.saw_admission_of, uids))
    finally:
        pods.delete()
        restart("none")


def admits(pods: RealPods, beside: Collection[str] = ()) -> bool:
    """Whether the kubelet admits pods, and has forgotten all but those of these UIDs.

    One that has just started knows neither its plugins nor its pods at first, and rejects.
    """
    uid = pods.create(pod("asking", container("main", "sleep 600", 1, 1)))
    status = pods.wait("asking", lambda s: s["phase"] in {"Running", "Failed"}, "it is decided")
    held_by = {holder.pod_uid for holder in read_checkpoint(DEVICE_PLUGINS / KUBELET_CHECKPOINT)}
    pods.delete("asking")
    return status["phase"] == "Running" and held_by <= {uid, *beside}


def resources_booked(uid: str) -> int:
    """Of how many resources the kubelet has the answer for a pod."""
    holders = read_checkpoint(DEVICE_PLUGINS / KUBELET_CHECKPOINT)
    return len({holder.resource for holder in holders if holder.pod_uid == uid})


def stem(device_id: str) -> str:
    """What a device ID says of its GPU."""
    return device_id.partition("-")[0]


FIRST_WITH_SIDECARS = 29


def shared_ids(some: tuple[Grant, ...], others: tuple[Grant, ...]) -> set[str]:
    """IDs that both hold."""
    first, second = ({name for one in held for name in one.ids.all} for held in (some, others))
    return first & second


def waiting(status: Mapping[str, Any]) -> list[str]:
    """Why containers are not started."""
    found = [one["waiting"].get("reason", "") for one in states(status) if "waiting" in one]
    return [
        reason for reason in found if reason not in {"", "ContainerCreating", "PodInitializing"}
    ]
