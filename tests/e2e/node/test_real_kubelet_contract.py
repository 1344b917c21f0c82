"""The real kubelet keeps the contract that the simulated ones are held to."""

import pytest

from tests.contracts.kubelet.kubelet_cases import *  # noqa: F403 - the cases are the point
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_kubelet import RealKubelet
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e


@pytest.fixture
def kubelet(node: RealNode, agent: RealAgent, pods: RealPods) -> RealKubelet:
    return RealKubelet(node, pods, agent.token)
