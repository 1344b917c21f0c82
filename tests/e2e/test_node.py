"""The node agent and a real kubelet, through the days of a node: starts, restarts, crashes."""

import pytest
from node_process import wait_for
from real_agent import RealAgent
from real_node import RealNode
from real_pods import RealPods, container, pod

from gpumanager.names import VCORE, VMEMORY

pytestmark = pytest.mark.e2e


def test_the_capacity_of_the_gpus_appears_on_the_node(node: RealNode, agent: RealAgent) -> None:
    assert {name: node.capacity(name) for name in (VCORE, VMEMORY)} == agent.devices


def test_a_deleted_pod_frees_what_it_held(node: RealNode, agent: RealAgent, pods: RealPods) -> None:
    uid = pods.create(pod("short", container("main", "sleep 600", 800, 8)))
    pods.running("short")
    assert [one.cores for one in agent.promised_to(uid)] == [800]

    pods.delete("short")
    pods.create(pod("next", container("main", "sleep 600", 800, 8)))

    pods.running("next")
    wait_for(lambda: not agent.promised_to(uid), "the journal has forgotten the pod")
