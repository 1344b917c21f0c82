"""The agent as `helm install` brings it to a real cluster: it works, is upgraded, goes, comes back.

The extender's and the webhook's pods would have no network here; what they do with the same flags
and roles is shown by `test_scheduling` and `test_admission_webhook`, and that a cluster takes their
objects by `test_chart_release`.
"""

import re
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from gpumanager.grants.grant import Grant, State
from gpumanager.limits.pages.books import read_usage
from gpumanager.names import ANNOTATION_GPU_ASSIGNED, ANNOTATION_INVENTORY, LABEL_COUNT
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import GIB, MIB
from tests.chart import helm_program
from tests.e2e.chart.real_chart import ChartedAgent
from tests.e2e.chart.real_release import skip_if_too_old
from tests.e2e.cluster.cluster_objects import everything
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import NODE_PATH, RealNode
from tests.e2e.node.real_pods import RealPods, container, memory_seen, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

ASKS: Final = "cuda-play query; sleep 600"
WORKS: Final = "cuda-play launch --memory 256MiB --kernel 5ms --seconds 3600"
WORKS_FOR: Final = 3.0
"""Seconds of GPU time for which its share is looked at."""
SHARE_POINTS: Final = 5.0
UNABLE: Final = re.compile(r"orbidden|cannot (?!.*no answer (?:within|in time))")
"""What is slow for once says nothing of rights."""
LEFT: Final = re.compile(r"tencent\.com/gpu(-|$)|GpusHealthy$|OtherGpuManager$")
"""What docs/install.md says that nodes keep, and the label that says where the agent goes."""


@pytest.fixture(scope="module")
def charted(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> Iterator[ChartedAgent]:
    """The chart's agent, installed and ready, in the place of the host's own."""
    node, agent, _ = stage
    skip_if_too_old(node)
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    made = ChartedAgent(node, agent.disk)
    made.prepare()
    made.install()
    agent.stop()
    try:
        made.start()
        yield made
    finally:
        made.stop()
        made.release.uninstall("--ignore-not-found")
        agent.start()
        agent.wait_until_advertised()


def test_the_agents_pod_is_ready_and_tells_the_cluster_its_gpus(
    charted: ChartedAgent, node: RealNode, agent: RealAgent
) -> None:
    def told() -> dict[str, Any] | None:
        metadata: dict[str, Any] = node.api.get(NODE_PATH)["metadata"]
        return metadata if ANNOTATION_INVENTORY in metadata.get("annotations", {}) else None

    metadata = wait_for(told, "the node's inventory")

    assert metadata["labels"][LABEL_COUNT] == str(len(agent.machine.topology.gpus))
    agent.wait_until_advertised()
    assert charted.is_ready()


def test_a_pod_runs_with_its_limits(
    charted: ChartedAgent, agent: RealAgent, pods: RealPods
) -> None:
    uid = pods.create(pod("limited", container("main", ASKS, 30, 4)))
    pods.running("limited")

    log = pods.printed("limited", "main", "free of")

    assert memory_seen(log) == GIB
    assert [(one.cores, one.blocks, one.state) for one in agent.promised_to(uid)] == [
        (30, 4, State.CONFIRMED)
    ]
    wait_for(lambda: _annotations(pods, "limited").get(ANNOTATION_GPU_ASSIGNED), "it is told")


def _annotations(pods: RealPods, name: str) -> dict[str, str]:
    found: dict[str, str] = pods.described(name)["metadata"].get("annotations", {})
    return found


def test_the_doctor_of_the_notes_finds_in_the_agents_pod_what_the_agent_has(
    charted: ChartedAgent, node: RealNode
) -> None:
    """With the flags of this node's values; by default it looks in other places."""
    (words,) = re.findall(r" -- (gpumanager doctor .*)", charted.release.notes)

    status, said = node.execute(charted.status, *words.split())

    assert status == 0, said
    assert re.search(r"ok +agent +runs", said)


def test_an_agents_pod_explains_where_a_pod_is(
    charted: ChartedAgent, node: RealNode, pods: RealPods
) -> None:
    """The command of the runbooks, after `--`."""
    pods.create(pod("asked", container("main", ASKS, 30, 4)))
    pods.printed("asked", "main", "free of")

    status, said = node.execute(charted.status, "gpumanager", "explain", "default/asked")

    assert status == 0, said
    assert "Container main has 30 % and 1 GiB of GPU" in said


def test_running_pods_keep_their_limits_while_the_agent_is_upgraded(
    charted: ChartedAgent, agent: RealAgent, pods: RealPods, gpus: SimulatedGpus
) -> None:
    promised = _at_work("goes-on", agent, pods)

    charted.release.upgrade("--set", "agent.recycleFailedPods=false")
    charted.stop()
    assert _share(gpus) <= 30 + SHARE_POINTS
    _keeps_its_limits("goes-on", promised, agent, pods)
    charted.start()

    assert "--recycle-failed-pods=false" in charted.arguments
    assert agent.promised_to(pods.uid("goes-on")) == (promised,)
    agent.wait_until_advertised()
    after = pods.create(pod("after", container("main", ASKS, 60, 8)))
    pods.running("after")
    assert memory_seen(pods.printed("after", "main", "free of")) == 2 * GIB
    assert [one.state for one in agent.promised_to(after)] == [State.CONFIRMED]


def _at_work(name: str, agent: RealAgent, pods: RealPods) -> Grant:
    """What is promised to a new pod, once its program holds memory and launches kernels."""
    uid = pods.create(pod(name, container("main", WORKS, 30, 4)))
    pods.running(name)
    (promised,) = agent.named_for(uid)
    directory = agent.directory_of(promised)
    pods.printed(name, "main", "holding")
    wait_for(lambda: read_usage(directory).devices[0].launches, "it works")
    return promised


def _share(gpus: SimulatedGpus) -> float:
    """Percent of a GPU that the newest container gets from now on, by the GPUs' own account."""

    def worked() -> float:
        last = max(gpus.tenants(), key=lambda one: one.serial)
        return sum(device.busy_ns for device in last.devices.values()) / 1e9

    began, before = time.monotonic(), worked()
    wait_for(lambda: worked() - before >= WORKS_FOR, "it goes on")
    return 100 * (worked() - before) / (time.monotonic() - began)


def _keeps_its_limits(name: str, promised: Grant, agent: RealAgent, pods: RealPods) -> None:
    now = read_usage(agent.directory_of(promised)).devices[0]
    assert now.limit.memory == GIB
    assert now.held >= 256 * MIB
    assert pods.running(name)["containerStatuses"][0]["restartCount"] == 0


def test_the_agents_role_is_enough(charted: ChartedAgent, pods: RealPods) -> None:
    pods.create(pod("told", container("main", "sleep 600", 10, 1)))
    pods.running("told")
    wait_for(lambda: _annotations(pods, "told").get(ANNOTATION_GPU_ASSIGNED), "it is told")

    said = charted.log()

    assert "registered with the kubelet" in said
    assert [line for line in said.splitlines() if UNABLE.search(line)] == []


def test_an_uninstall_leaves_what_the_docs_say_and_an_install_goes_on_from_there(
    charted: ChartedAgent, agent: RealAgent, node: RealNode, pods: RealPods
) -> None:
    promised = _at_work("outlives", agent, pods)

    charted.release.uninstall()
    charted.stop()

    _keeps_its_limits("outlives", promised, agent, pods)
    assert everything(node.api) - charted.before == {"/api/v1/pods default/outlives"}
    assert {LEFT.match(one) is not None for one in _marks(node)} == {True}
    assert agent.promised_to(pods.uid("outlives")) == (promised,)
    charted.install()
    charted.start()
    assert agent.promised_to(pods.uid("outlives")) == (promised,)
    _keeps_its_limits("outlives", promised, agent, pods)


def _marks(node: RealNode) -> list[str]:
    """What a node has that is no kubelet's."""
    found = node.api.get(NODE_PATH)
    written = (*found["metadata"]["labels"], *found["metadata"]["annotations"])
    conditions = (one["type"] for one in found["status"]["conditions"])
    return [
        *(one for one in written if "kubernetes.io/" not in one),
        *(one for one in conditions if one != "Ready" and not one.endswith("Pressure")),
    ]
