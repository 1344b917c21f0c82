"""kube-scheduler keeps the contract about allocations that the simulated scheduler is held to.

The node of these claims is an object alone, without kubelet and agent: its slice stays as it is.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.contracts.claims.allocation_cases import CASES, AllocationCase, shown
from tests.e2e.claims.admin_access import admin_access_allowed
from tests.e2e.claims.real_claims import CLAIMS, EVERY_GPU, SLICES, RealClaims, claims_of
from tests.e2e.cluster.api_client import Object
from tests.e2e.node.real_node import FIRST_WITH_SHARED_DEVICES, RealNode
from tests.e2e.node.real_pods import RealPods, pod
from tests.sim.claims.claim_objects import node as node_object
from tests.sim.claims.claim_objects import slice_of

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

NODES: Final = "/api/v1/nodes"


@pytest.fixture
def place(node: RealNode) -> Iterator[Object]:
    """The node of the claims: where their pods go."""
    if node.minor < FIRST_WITH_SHARED_DEVICES or not node.has_controllers:
        pytest.skip("no scheduler of shared devices, or no controllers that free them")
    made = node_object("contract")
    room = {"cpu": "8", "memory": "8Gi", "pods": "100"}
    node.api.create(NODES, made | {"status": {"allocatable": room, "capacity": room}})
    yield made
    node.api.delete(f"{NODES}/contract", 0)


@pytest.fixture
def claims(node: RealNode, pods: RealPods, place: Object) -> Iterator[RealClaims]:
    node.start_controllers()
    with admin_access_allowed(node.api), claims_of(node.api, pods) as made:
        made.device_class("gpu", EVERY_GPU)
        yield made


@pytest.fixture
def case(request: pytest.FixtureRequest, node: RealNode) -> Iterator[AllocationCase]:
    """Its slice is published."""
    published = slice_of("contract", *map(dict, request.param.devices))
    node.api.create(SLICES, published)
    yield request.param
    node.api.delete(f"{SLICES}/{published['metadata']['name']}", 0)


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name, indirect=True)
def test_claims_are_given_what_the_simulated_scheduler_gives(
    case: AllocationCase, claims: RealClaims, node: RealNode, pods: RealPods, place: Object
) -> None:
    given = []

    for index, devices in enumerate(case.claims):
        metadata = {"name": f"c{index}"}
        claims.make({"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}})
        made = pod(f"p{index}", {"name": "main", "image": "none"})
        made["spec"] |= {
            "nodeSelector": place["metadata"]["labels"],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": f"c{index}"}],
        }
        pods.create(made)
        pods.wait(f"p{index}", _is_decided, "the scheduler decides")
        claim = node.api.get(f"{CLAIMS}/c{index}")
        allocation = claim.get("status", {}).get("allocation")
        given.append(allocation and shown(allocation))

    assert given == list(case.given)


def _is_decided(status: Object) -> bool:
    return any(one["type"] == "PodScheduled" for one in status.get("conditions", ()))
