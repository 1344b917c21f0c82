"""Device plugins and claims side by side by the chart: `agent.interface: both`."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from gpumanager.names import VCORE
from gpumanager.sim.gpu import SimulatedGpus
from tests.chart import helm_program
from tests.e2e.chart.real_chart import ChartedAgent
from tests.e2e.claims.both_interfaces import WAITS, annotate, goes_on, gpus_of, runs
from tests.e2e.claims.real_claims import (
    CLASS,
    COLLECTOR,
    RealClaims,
    claiming,
    claims_of,
    exactly,
    holder,
)
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods, container, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

AGENT: Final[dict[str, Any]] = {
    "interface": "both",
    "claimsGpus": 4,
    "extraArgs": ["--allocation-check-period=5s", "--gpu-move-delay=3s"],
}


@pytest.fixture
def charted(
    stage: tuple[RealNode, RealAgent, SimulatedGpus], claims_node: RealNode
) -> Iterator[ChartedAgent]:
    """The chart's agent, with its account, roles and policies, in the place of the host's own."""
    if helm_program.found() is None:
        pytest.skip(helm_program.MISSING)
    agent = stage[1]
    claims_node.start_controllers(COLLECTOR)
    made = ChartedAgent(claims_node, agent.disk, {"agent": AGENT})
    made.prepare()
    made.install()
    agent.stop()
    try:
        made.start()
        yield made
    finally:
        annotate(claims_node, None)
        made.stop()
        made.release.uninstall("--ignore-not-found")
        claims_node.stop_controllers()
        agent.start()
        agent.wait_until_advertised()


@pytest.fixture
def claims(charted: ChartedAgent, claims_node: RealNode, pods: RealPods) -> Iterator[RealClaims]:
    with claims_of(claims_node.api, pods) as made:
        yield made


def test_the_charts_agent_offers_half_of_the_gpus_by_each_and_more_by_the_annotation(
    charted: ChartedAgent, claims: RealClaims, claims_node: RealNode, pods: RealPods
) -> None:
    assert {"--interface=both", "--claims-gpus=4"} <= set(charted.arguments)
    source = claims.template("share", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    wait_for(lambda: len(gpus_of(claims)) == 4, "claims have half of the GPUs")
    wait_for(lambda: claims_node.allocatable(VCORE) == 400, "device plugins have the others")

    device = runs(pods, pod("device", container("main", WAITS, 30, 8)))
    claimed = runs(pods, claiming("claimed", source, holder("main", WAITS)))
    assert device not in gpus_of(claims)
    assert claimed in gpus_of(claims)

    annotate(claims_node, "6")
    wait_for(lambda: len(gpus_of(claims)) == 6, "two more GPUs go over")
    wait_for(lambda: claims_node.allocatable(VCORE) == 200, "device plugins have the others")
    goes_on(pods, "device", "claimed")
    assert [line for line in charted.log().splitlines() if "orbidden" in line] == []
