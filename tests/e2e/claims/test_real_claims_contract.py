"""The real kubelet keeps the contract about claims that the simulated ones are held to."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.dra.dra_cases import *  # noqa: F403 - the cases are the point
from tests.e2e.claims.real_claims_kubelet import RealClaimsKubelet
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_kubelet import RealKubelet
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e


@pytest.fixture
async def claims_kubelet(
    claims_node: RealNode, agent: RealAgent, pods: RealPods
) -> AsyncIterator[RealClaimsKubelet]:
    claims_node.stop_controllers()
    kubelet = RealClaimsKubelet(RealKubelet(claims_node, pods, agent.token), claims_node.api)
    yield kubelet
    await kubelet.close()
