"""The node's agent serves claims, of GPUs that differ in what claims can ask to be near or apart.

A kubelet ignores device IDs of NUMA nodes that its host does not have, so the GPUs of the other
tests are all within those. Claims go past the kubelet's topology manager.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.sim.machines import read_machine
from tests.e2e.claims.claims_leftovers import wait_until_offered
from tests.e2e.claims.real_claims import CLASS, COLLECTOR, EVERY_GPU, RealClaims, claims_of
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods

MACHINE: Final = Path(__file__).with_name("nvlink-pairs.yaml")

Stage = tuple[RealNode, RealAgent, SimulatedGpus]


@pytest.fixture(scope="module")
def agent_of_claims(stage: Stage) -> Iterator[RealAgent]:
    """The node's agent, which is to serve claims meanwhile. Not started."""
    node, agent, _ = stage
    agent.stop()
    agent.interface = "claims"
    yield agent
    node.stop_controllers()
    agent.stop()
    agent.interface = "device-plugin"
    agent.start()
    agent.wait_until_advertised()


@pytest.fixture(scope="module")
def claims_gpus(stage: Stage, agent_of_claims: RealAgent) -> Iterator[SimulatedGpus]:
    """The node's GPUs meanwhile, in the place of the others: containers are shown what lies there
    when they start."""
    others = stage[2].device_directory / "nvidiactl"
    aside = others.rename(others.with_name("others"))
    made = SimulatedGpus.create(agent_of_claims.disk.base, read_machine(MACHINE))
    yield made
    agent_of_claims.stop()
    made.close()
    aside.rename(others)


@pytest.fixture
def claims_agent(
    claims_node: RealNode, agent_of_claims: RealAgent, claims_gpus: SimulatedGpus
) -> RealAgent:
    """It runs."""
    if not agent_of_claims.process.runs:
        agent_of_claims.start()
    return agent_of_claims


@pytest.fixture
def claims(claims_node: RealNode, claims_agent: RealAgent, pods: RealPods) -> Iterator[RealClaims]:
    """The agent offers the node's GPUs to claims; all claims of the test go with it."""
    claims_node.start_controllers(COLLECTOR)
    with claims_of(claims_node.api, pods) as made:
        made.device_class(CLASS, EVERY_GPU)
        wait_until_offered(made)
        yield made
