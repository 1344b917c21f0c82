"""The Helm chart and a real cluster: every object is taken, and the agent's pod does its work.

The extender's and the webhook's pods would have no network here; what they do with the same flags
and roles is shown by `test_scheduling` and `test_admission_webhook`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import goldens
import helm_program
import pytest
from api_client import ApiError
from node_process import wait_for
from real_agent import RealAgent
from real_chart import ChartedAgent, is_taken, parsed
from real_node import NODE_PATH, RealNode
from real_pods import RealPods, container, memory_seen, pod

from gpumanager.allocator.journal import State
from gpumanager.names import ANNOTATION_GPU_ASSIGNED, ANNOTATION_INVENTORY, LABEL_COUNT
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import GIB, MIB
from gpumanager.virtual.region import read_usage

pytest_plugins = ["node_fixtures"]
pytestmark = pytest.mark.e2e

GOLDENS: Final = goldens.FILES
OF_OPERATORS: Final = {"monitoring.coreos.com/v1", "cert-manager.io/v1"}
"""Kinds that a cluster has where their operators run."""
ASKS: Final = "cuda-play query; sleep 600"
WORKS: Final = "cuda-play launch --memory 256MiB --kernel 5ms --seconds 60; sleep 600"
SHARE: Final = re.compile(r"a share of ([0-9.]+) %")
SHARE_POINTS: Final = 5.0


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_an_api_server_takes_every_object_as_it_is(node: RealNode, path: Path) -> None:
    objects = parsed(path.read_text())

    unknown = {one["apiVersion"] for one in objects if not is_taken(node.api, one)}

    assert unknown <= OF_OPERATORS


def test_an_object_with_a_field_that_is_none_is_not_taken(node: RealNode) -> None:
    (service,) = (
        one
        for one in parsed(GOLDENS[0].read_text())
        if one["kind"] == "Service" and one["metadata"]["name"].endswith("extender")
    )
    wrong = {**service, "spec": {**service["spec"], "selektor": {}}}

    with pytest.raises(ApiError, match="selektor"):
        is_taken(node.api, wrong)


@pytest.fixture(scope="module")
def charted(stage: tuple[RealNode, RealAgent, SimulatedGpus]) -> Iterator[ChartedAgent]:
    """The chart's agent, installed and ready, in the place of the host's own."""
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    node, agent, _ = stage
    made = ChartedAgent(node, agent.disk)
    made.install()
    agent.stop()
    try:
        made.start()
        yield made
    finally:
        made.stop()
        made.remove()
        agent.start()


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
        (30, 4, State.SETTLED)
    ]
    wait_for(lambda: _annotations(pods, "limited").get(ANNOTATION_GPU_ASSIGNED), "it is told")


def _annotations(pods: RealPods, name: str) -> dict[str, str]:
    found: dict[str, str] = pods.described(name)["metadata"].get("annotations", {})
    return found


def test_running_pods_keep_their_limits_while_the_agent_is_replaced(
    charted: ChartedAgent, agent: RealAgent, pods: RealPods
) -> None:
    uid = pods.create(pod("goes-on", container("main", WORKS, 30, 4)))
    pods.running("goes-on")
    (promised,) = agent.promised_to(uid)
    directory = agent.directory_of(promised)
    wait_for(lambda: read_usage(directory).devices[0].launches, "it works")

    charted.stop()
    without = read_usage(directory).devices[0]
    charted.start()

    assert without.limit.memory == GIB
    assert without.held >= 256 * MIB
    assert pods.running("goes-on")["containerStatuses"][0]["restartCount"] == 0
    assert agent.promised_to(uid) == (promised,)
    after = pods.create(pod("after", container("main", ASKS, 60, 8)))
    pods.running("after")
    assert memory_seen(pods.printed("after", "main", "free of")) == 2 * GIB
    assert [one.state for one in agent.promised_to(after)] == [State.SETTLED]
    share = SHARE.search(pods.printed("goes-on", "main", "a share of"))
    assert share is not None
    assert float(share[1]) <= 30 + SHARE_POINTS


def test_the_agents_role_is_enough(charted: ChartedAgent, pods: RealPods) -> None:
    pods.create(pod("told", container("main", "sleep 600", 10, 1)))
    pods.running("told")
    wait_for(lambda: _annotations(pods, "told").get(ANNOTATION_GPU_ASSIGNED), "it is told")

    said = charted.log()

    assert "registered with the kubelet" in said
    assert [line for line in said.splitlines() if "orbidden" in line or "cannot" in line] == []
