"""The examples with claims: what a cluster of one node gives them."""

from pathlib import Path
from typing import Any

import pytest

from gpumanager.dra.slice import NodeGpus, resource_slice
from gpumanager.errors import InputError
from gpumanager.placement.values import FreeGpu, FreeGpus
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.claims.node import CLASSES
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import read_manifest
from tests.sim.claims.claim_objects import node

EXAMPLES = Path(__file__).parents[3] / "examples" / "claims"
USED = 40
"""Percent of the second GPU that somebody else has."""


async def scheduled(*names: str) -> dict[str, list[str]]:
    """What each pod's claim was given: request, GPU's index, cores and memory."""
    topology = load_machine("t4x4").topology
    idle = FreeGpus.of_idle(topology)
    partly = FreeGpu(100 - USED, idle.of(topology.gpus[1]).blocks, 1)
    gpus = NodeGpus(topology, FreeGpus({**idle.gpus, topology.gpus[1].uuid: partly}))
    published = resource_slice("n", "", gpus)
    devices = {one["name"]: one["attributes"]["uuid"] for one in published["spec"]["devices"]}
    index = {gpu.uuid: gpu.index for gpu in topology.gpus}
    server = SimulatedApiServer()
    for resource, item in (
        ("nodes", node()),
        *(("deviceclasses", one) for one in CLASSES),
        ("resourceslices", published),
    ):
        await server.create(resource, item)
    for one in read_manifest([EXAMPLES / f"{name}.yaml" for name in names]).objects:
        await server.create(one.resource, one.item)

    await ClaimControlPlane(server).settle()

    found: dict[str, list[str]] = {}
    for claim in server.objects.list("resourceclaims"):
        for result in claim["status"]["allocation"]["devices"]["results"]:
            of = devices[result["device"]]["string"]
            rows = found.setdefault(claim["status"]["reservedFor"][0]["name"], [])
            rows.append(f"{result['request']}: {index[of]} {_amounts(result)}")
    assert all(one["spec"]["nodeName"] == "n" for one in server.objects.list("pods"))
    return found


def _amounts(result: dict[str, Any]) -> str:
    consumed = result["consumedCapacity"]
    return f"{consumed['cores']} {consumed['memory']}"


async def test_one_share() -> None:
    assert await scheduled("one-share") == {"one-share": ["gpu: 1 30 2Gi"]}


async def test_two_containers_of_one_claim_have_one_budget() -> None:
    found = await scheduled("two-containers-one-claim")

    assert found == {"two-containers-one-claim": ["gpu: 1 40 4Gi"]}


async def test_two_requests_on_two_gpus() -> None:
    assert await scheduled("two-gpus") == {"two-gpus": ["small: 1 20 1Gi", "large: 0 60 4Gi"]}


async def test_a_whole_gpu() -> None:
    (row,) = (await scheduled("one-share", "whole-gpu"))["whole-gpu-claim"]

    assert row == "gpu: 0 100 15Gi"


async def test_whole_gpus_by_an_extended_resource() -> None:
    """What is in use stands first in the slice, and no claim holds it here."""
    found = (await scheduled("whole-gpus-by-resource"))["whole-gpus-by-resource"]

    assert found == [
        "container-1-request-0: 1 100 15Gi",
        "container-2-request-0: 0 100 15Gi",
        "container-2-request-0: 2 100 15Gi",
    ]


async def test_who_watches_sees_gpus_in_use_and_takes_nothing_of_them() -> None:
    found = await scheduled("whole-gpu", "watch-all", "one-share")

    assert sorted(found["watch-all"]) == [f"gpus: {index} 1 256Mi" for index in range(4)]
    assert {*found} == {"whole-gpu-claim", "watch-all", "one-share"}


async def test_the_first_alternative_that_is_available() -> None:
    assert await scheduled("first-available") == {"first-available": ["gpu/shared: 1 30 2Gi"]}


def test_every_example_is_tried_here() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.yaml")}

    assert names == {
        "first-available",
        "one-share",
        "two-containers-one-claim",
        "two-gpus",
        "watch-all",
        "whole-gpu",
        "whole-gpus-by-resource",
    }


@pytest.mark.parametrize(
    ("wrong", "right", "cause"),
    [
        ("capcity:", "capacity:", r"capcity: unknown field; did you mean capacity\?"),
        ("cores: 3O", "cores: 30", "cores: '3O' is not a quantity: write 30 or 2Gi"),
        ("deviceClasName:", "deviceClassName:", "unknown field"),
        ("name: One_Share", "name: one-share", "'One_Share' is not a name"),
        ("count: 0\n            capacity:", "capacity:", "count: expected 1 or more"),
        ("allocationMode: Some\n            capacity:", "capacity:", "expected ExactCount or All"),
        (
            "allocationMode: All\n            count: 2\n            capacity:",
            "capacity:",
            "All devices have no count",
        ),
        (
            "derivedAttributes: []\n            capacity:",
            "capacity:",
            "not simulated: leave it out",
        ),
        (
            "selectors: [{cel: {expression: device.name == 'x'}}]\n            capacity:",
            "capacity:",
            r"expression: device.name == .x.: not simulated: write comparisons of",
        ),
        (
            "firstAvailable: [{name: a}]\n          exactly:",
            "exactly:",
            "exactly one of exactly and firstAvailable is required",
        ),
        ("count: 1", "deviceClassName: gpu.tencent.com", "deviceClassName is missing"),
        (
            "constraints: [{}]\n      requests:",
            "requests:",
            "matchAttribute or distinctAttribute is missing",
        ),
        (
            "constraints: [{matchAttribute: numa}]\n      requests:",
            "requests:",
            "expected a domain and a name",
        ),
        ("config: [{requests: [x]}]\n      requests:", "requests:", "'x' is no request of this"),
    ],
)
def test_a_claim_with_a_mistake_is_refused_by_file_and_line(
    tmp_path: Path, wrong: str, right: str, cause: str
) -> None:
    text = (EXAMPLES / "one-share.yaml").read_text()
    kept, rest = text.split("apiVersion:", 1)
    assert right in rest
    (tmp_path / "claim.yaml").write_text(f"{kept}apiVersion:{rest.replace(right, wrong, 1)}")

    with pytest.raises(InputError, match=rf"claim.yaml:\d+: .*{cause}"):
        read_manifest([tmp_path / "claim.yaml"])


def test_one_name_for_two_requests_is_refused(tmp_path: Path) -> None:
    text = (EXAMPLES / "two-gpus.yaml").read_text()
    (tmp_path / "claim.yaml").write_text(text.replace("name: large", "name: small", 1))

    with pytest.raises(InputError, match=r"claim.yaml:\d+: .*its name is given twice"):
        read_manifest([tmp_path / "claim.yaml"])
