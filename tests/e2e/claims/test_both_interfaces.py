"""Device plugins and claims on one node: each GPU belongs to one of them, and goes over while
containers run.

Which GPUs claims have is read from the node's slice, how many device plugins have from what is
allocatable, and who uses which from what programs in the containers print.
"""

import os
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from gpumanager.names import VCORE
from tests.e2e.claims.both_interfaces import WAITS, annotate, goes_on, gpus_of, runs
from tests.e2e.claims.claims_leftovers import offered
from tests.e2e.claims.real_claims import (
    CLASS,
    COLLECTOR,
    EVERY_GPU,
    RealClaims,
    claiming,
    claims_of,
    exactly,
    holder,
)
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods, container, gpus_seen, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

FLAGS: Final = ("--claims-gpus=4", "--gpu-move-delay=3s")
EARLIER: Final = os.environ.get("GPUMANAGER_E2E_EARLIER", "")
"""The Python of an environment in which an earlier agent is installed."""


@pytest.fixture
def both(claims_node: RealNode, agent: RealAgent) -> Iterator[RealAgent]:
    """The node's agent offers half of its GPUs to claims."""
    claims_node.start_controllers(COLLECTOR)
    agent.stop()
    agent.interface, agent.flags = "both", FLAGS
    agent.start()
    yield agent
    annotate(claims_node, None)
    claims_node.stop_controllers()
    agent.stop()
    agent.interface, agent.flags, agent.python = "device-plugin", (), sys.executable
    agent.start()
    agent.wait_until_advertised()


@pytest.fixture
def claims(both: RealAgent, claims_node: RealNode, pods: RealPods) -> Iterator[RealClaims]:
    with claims_of(claims_node.api, pods) as made:
        made.device_class(CLASS, EVERY_GPU)
        yield made


def test_a_gpu_goes_over_by_the_annotation_when_its_pod_has_ended_and_back(
    claims: RealClaims, claims_node: RealNode, pods: RealPods
) -> None:
    source = claims.template("share", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    rest = claims.template("rest", exactly("gpus", CLASS, 6))
    wait_for(lambda: len(offered(claims)) == 4, "claims have half of the GPUs")
    wait_for(lambda: claims_node.allocatable(VCORE) == 400, "device plugins have the others")

    device = runs(pods, pod("device", container("main", WAITS, 30, 8)))
    claimed = runs(pods, claiming("claimed", source, holder("main", WAITS)))
    assert device not in gpus_of(claims)
    assert claimed in gpus_of(claims)

    annotate(claims_node, "8")
    wait_for(lambda: len(offered(claims)) == 7, "unused GPUs go over")
    assert device not in gpus_of(claims)
    pods.create(claiming("rest", rest, holder("main", WAITS)))
    assert device not in gpus_seen(pods.printed("rest", "main", "ready"))
    goes_on(pods, "device", "claimed")
    pods.delete("device")
    wait_for(lambda: device in gpus_of(claims), "its GPU goes over when it has ended")

    annotate(claims_node, "0")
    pods.delete("rest")
    wait_for(lambda: claims_node.allocatable(VCORE) == 700, "device plugins have all but one")
    wait_for(lambda: offered(claims) == [], "the one that is in use is not offered either")
    assert runs(pods, pod("again", container("main", WAITS, 30, 8))) != claimed
    goes_on(pods, "claimed")
    pods.delete("claimed")
    wait_for(lambda: claims_node.allocatable(VCORE) == 800, "device plugins have all")


@pytest.mark.skipif(
    not EARLIER, reason="GPUMANAGER_E2E_EARLIER names no Python with an earlier agent"
)
def test_containers_of_both_interfaces_outlive_an_upgrade_and_the_way_back(
    claims: RealClaims, claims_node: RealNode, both: RealAgent, pods: RealPods
) -> None:
    source = claims.template("share", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    both.stop()
    both.python = EARLIER
    both.start()
    wait_for(lambda: len(offered(claims)) == 4, "claims have half of the GPUs")
    wait_for(lambda: claims_node.allocatable(VCORE) == 400, "device plugins have the others")
    runs(pods, pod("device", container("main", WAITS, 30, 8)))
    runs(pods, claiming("claimed", source, holder("main", WAITS)))
    granted = {one.id: (one.shares, one.pod) for one in both.promises()}

    for number, python in enumerate((sys.executable, EARLIER, sys.executable)):
        both.stop()
        both.python = python
        both.start()
        wait_for(lambda: claims_node.allocatable(VCORE) == 400, "device plugins have the others")
        assert {one.id: (one.shares, one.pod) for one in both.promises()} == granted
        goes_on(pods, "device", "claimed")
        runs(pods, pod(f"device-{number}", container("main", WAITS, 30, 8)))
        runs(pods, claiming(f"claimed-{number}", source, holder("main", WAITS)))
        pods.delete(f"device-{number}")
        pods.delete(f"claimed-{number}")
        wait_for(lambda: {one.id for one in both.promises()} == granted.keys(), "they have ended")
    assert both.accusations() == []
