"""A second device plugin for the same GPUs, on a real kubelet: whichever comes first, one offers.

The kubelet keeps the capacity of a plugin that has stopped for five minutes; a kubelet that
restarts does not, so the tests restart it where they wait for the plugin to be gone.
"""

import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import pytest

from gpumanager.names import VCORE, VMEMORY
from tests.chart import helm_program
from tests.e2e.chart.real_chart import LABEL
from tests.e2e.chart.real_release import Release, notes, skip_if_too_old
from tests.e2e.node.node_process import NodeProcess, wait_for
from tests.e2e.node.real_agent import METRICS_PORT, RealAgent
from tests.e2e.node.real_node import NODE, NODE_PATH, RealNode
from tests.e2e.node.real_pods import RealPods, container, gpus_seen, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

NVIDIA: Final = "nvidia.com/gpu"
COUNT: Final = 8
WAITS: Final = "cuda-play query; echo ready; sleep 600"
EVENTS: Final = "/api/v1/namespaces/default/events"


class SecondPlugin:
    """For all GPUs of the node, under NVIDIA's name."""

    def __init__(self, node: RealNode) -> None:
        self._node = node
        self._process = NodeProcess("second plugin", node.logs / "second-plugin.log")

    def start(self) -> None:
        words = ("-m", "tests.e2e.node.second_plugin", NVIDIA, COUNT)
        self._process.start(sys.executable, *words)
        self._process.wait_for(self._is_offered, f"{NVIDIA} is allocatable")

    def stop(self) -> None:
        """Safe to repeat."""
        self._process.stop()

    def leave(self) -> None:
        """Stopped, and forgotten by the kubelet."""
        self.stop()
        self._node.stop_kubelet()
        self._node.start_kubelet()
        wait_for(lambda: self._node.capacity(NVIDIA) == 0, f"{NVIDIA} is gone")

    def _is_offered(self) -> bool:
        return self._node.allocatable(NVIDIA) == COUNT


@pytest.fixture
def second(node: RealNode, agent: RealAgent) -> Iterator[SecondPlugin]:
    """The agent takes up again soon after the plugin has gone."""
    made = SecondPlugin(node)
    agent.stop()
    agent.flags = ("--other-managers-timeout=3s",)
    yield made
    if node.capacity(NVIDIA):
        made.leave()
    agent.stop()
    agent.flags = ()
    agent.start()
    agent.wait_until_advertised()


def test_gpus_are_withdrawn_when_another_plugin_comes_and_offered_again_when_it_has_gone(
    node: RealNode, agent: RealAgent, second: SecondPlugin, pods: RealPods
) -> None:
    agent.start()
    agent.wait_until_advertised()
    uid = pods.create(pod("first", container("main", WAITS, 30, 4)))
    (gpu,) = gpus_seen(pods.printed("first", "main", "ready"))

    second.start()
    refuses(node, agent)
    second.stop()
    assert node.allocatable(VCORE) == 0  # the kubelet keeps its capacity: it may only restart

    second.leave()
    agent.wait_until_advertised()
    wait_for(lambda: condition(node) == "False", "the node says that there is one manager")
    wait_for(lambda: readiness() == 200, "the agent is ready")
    assert pods.running("first")["containerStatuses"][0]["restartCount"] == 0
    (grant,) = agent.promised_to(uid)
    assert grant.gpus == (gpu,)


def test_nothing_is_offered_beside_a_plugin_that_was_first_until_it_has_gone(
    node: RealNode, agent: RealAgent, second: SecondPlugin, pods: RealPods
) -> None:
    second.start()
    agent.start()
    refuses(node, agent)
    pods.create(pod("waits", container("main", WAITS, 30, 4)))
    pods.wait("waits", is_unschedulable, "no node has cores for it")

    second.leave()
    agent.wait_until_advertised()
    assert gpus_seen(pods.printed("waits", "main", "ready"))


def test_the_chart_warns_of_nodes_whose_gpus_another_plugin_has(
    node: RealNode, agent: RealAgent, second: SecondPlugin
) -> None:
    skip_if_too_old(node)
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    node.api.ask("PATCH", NODE_PATH, {"metadata": {"labels": LABEL}}, "merge-patch+json")
    second.start()
    release = Release(node, "beside")
    try:
        said = notes(release.install())
    finally:
        release.uninstall("--ignore-not-found")

    assert f"{NODE} ({NVIDIA}: {COUNT})" in said


def refuses(node: RealNode, agent: RealAgent) -> None:
    """Everywhere where somebody looks."""
    for resource in (VCORE, VMEMORY):
        wait_for(partial(is_withdrawn, node, resource), f"no {resource} is allocatable")
    wait_for(lambda: condition(node) == "True", "the node has the condition")
    wait_for(lambda: readiness() == 503, "the agent is not ready")
    wait_for(lambda: "OtherGpuManager" in reasons(node), "the node has the event")
    _, found = agent.doctor()
    assert found["other GPU managers"]["verdict"] == "wrong"
    assert f"{NVIDIA}: {COUNT}" in found["other GPU managers"]["found"]


def is_withdrawn(node: RealNode, resource: str) -> bool:
    return node.allocatable(resource) == 0


def is_unschedulable(status: Mapping[str, Any]) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in status.get("conditions", ()))


def condition(node: RealNode) -> str:
    conditions = node.api.get(NODE_PATH)["status"]["conditions"]
    return next((one["status"] for one in conditions if one["type"] == "OtherGpuManager"), "")


def reasons(node: RealNode) -> set[str]:
    """Of events about nodes."""
    events = node.api.get(EVENTS)["items"]
    return {one["reason"] for one in events if one["involvedObject"]["kind"] == "Node"}


def readiness() -> int:
    """HTTP status, 0 without an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/readyz") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
