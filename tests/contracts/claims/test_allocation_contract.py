"""The simulated scheduler keeps the contract; tests/e2e/claims holds kube-scheduler to the same."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.contracts.claims.allocation_cases import CASES, AllocationCase, shown
from tests.sim.claims.claim_objects import device_class, node, pod, slice_of


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
async def test_claims_are_given_what_kube_scheduler_gives(case: AllocationCase) -> None:
    server = SimulatedApiServer()
    await server.create("nodes", node())
    await server.create("deviceclasses", device_class())
    await server.create("resourceslices", slice_of("n", *map(dict, case.devices)))
    given = []

    for index, devices in enumerate(case.claims):
        metadata: Mapping[str, Any] = {"name": f"c{index}", "namespace": "default"}
        await server.create("resourceclaims", {"metadata": metadata, "spec": {"devices": devices}})
        await server.create("pods", pod(f"p{index}", f"c{index}"))
        await ClaimControlPlane(server).settle()
        claim = server.objects.get(Key("resourceclaims", "default", f"c{index}"))
        allocation = (claim.get("status") or {}).get("allocation")
        given.append(allocation and shown(allocation))

    assert given == list(case.given)
