"""The real kubelet keeps the contract that the simulated ones are held to."""

import pytest
from kubelet_cases import *  # noqa: F403 - the cases are the point
from real_agent import RealAgent
from real_kubelet import RealKubelet
from real_node import RealNode
from real_pods import RealPods

pytest_plugins = ["node_fixtures"]
pytestmark = pytest.mark.e2e


@pytest.fixture
def kubelet(node: RealNode, agent: RealAgent, pods: RealPods) -> RealKubelet:
    return RealKubelet(node, pods, agent.token)
