"""Every example of claims as real containers on a real node."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from gpumanager.sim.gpu import SimulatedGpus
from tests import ROOT
from tests.e2e.claims.admin_access import admin_access_allowed
from tests.e2e.claims.real_claims import CLASS, EVERY_GPU, RealClaims
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods, prepared

pytest_plugins = ["tests.e2e.node_fixtures", "tests.e2e.claims.claims_fixtures"]
pytestmark = pytest.mark.e2e

EXAMPLES: Final = sorted((ROOT / "examples" / "claims").glob("*.yaml"))


@pytest.fixture
def by_resource(claims: RealClaims) -> None:
    """Whole GPUs in one line, as the chart has it."""
    claims.device_class(f"whole.{CLASS}", EVERY_GPU, extendedResourceName="tencent.com/gpu")


@pytest.fixture
def admin_access(claims_node: RealNode) -> Iterator[None]:
    with admin_access_allowed(claims_node.api):
        yield


@pytest.mark.usefixtures("by_resource", "admin_access")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda one: one.stem)
def test_the_containers_of_an_example_work_on_the_gpus_of_its_claim_and_end_well(
    claims: RealClaims, claims_gpus: SimulatedGpus, pods: RealPods, path: Path
) -> None:
    objects = list(yaml.safe_load_all(path.read_text()))
    known = {account.serial for account in claims_gpus.tenants()}
    names = [one["metadata"]["name"] for one in objects if one["kind"] == "Pod"]

    for one in objects:
        if one["kind"] == "Pod":
            pods.create(prepared(one))
        else:
            claims.make(one)

    given = wait_for(claims.allocated, "GPUs are allocated")
    assert [pods.ended(name)["phase"] for name in names] == ["Succeeded"] * len(names)
    worked = {
        gpu
        for account in claims_gpus.tenants()
        if account.serial not in known
        for gpu, use in account.devices.items()
        if use.bytes_peak
    }
    assert worked
    assert worked <= {claims.uuid(one.device) for one in given}
