"""ResourceClaims, and what pods use of them, as JSON objects have them."""

from typing import Any

import pytest

from gpumanager.dra.claim import (
    AllocatedDevice,
    NotAClaim,
    ResourceClaim,
    device_name,
    read_claim,
)
from gpumanager.dra.pod_claims import ClaimUse, read_pod_claims
from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.vcuda_config import VcudaConfig, read_vcuda_config
from tests.dra.claim_node import claim_item, pod_item, result

KIND = {"apiVersion": "gpu.tencent.com/v1alpha1", "kind": "VcudaConfig"}


@pytest.mark.parametrize(
    ("consumed", "cores", "blocks"),
    [
        ({"cores": "30", "memory": "2Gi"}, 30, 8),
        ({"cores": "1", "memory": "256Mi"}, 1, 1),
        ({"cores": "100", "memory": "17179869184"}, 100, 64),
        ({"cores": "30", "memory": "300Mi"}, 30, 2),
        ({"memory": "1Gi"}, None, 4),
        ({}, None, None),
    ],
)
def test_amounts_are_read_as_kubernetes_writes_them(
    consumed: dict[str, str], cores: int | None, blocks: int | None
) -> None:
    item = claim_item("a", result("gpu-1", None, None) | {"consumedCapacity": consumed})

    (device,) = read_claim(item).devices

    assert (device.cores, device.blocks) == (cores, blocks)


@pytest.mark.parametrize("cores", ["0", "101", "-1", "1500m", "many"])
def test_amounts_that_no_gpu_has_are_no_claim(cores: str) -> None:
    with pytest.raises(NotAClaim, match=r"consumedCapacity\.cores"):
        read_claim(
            claim_item("a", result("gpu-1", None, None) | {"consumedCapacity": {"cores": cores}})
        )


def test_devices_of_other_drivers_are_passed_over() -> None:
    theirs = result("nic-0", 1, "1Gi") | {"driver": "nic.example.com"}

    claim = read_claim(claim_item("a", theirs, result("gpu-1", 30, "1Gi")))

    assert claim.devices == (AllocatedDevice("gpu", "gpu-1", "n1", "share-gpu-1-gpu", 30, 4),)


def test_alternatives_are_of_the_request_that_pods_name() -> None:
    claim = read_claim(
        claim_item("a", result("gpu-1", 30, "1Gi", "g/t0"), result("gpu-2", 30, "1Gi", "h"))
    )

    assert {name: [one.name for one in found] for name, found in claim.requests.items()} == {
        "g": ["gpu-1"],
        "h": ["gpu-2"],
    }


def test_a_claim_without_an_allocation_has_no_devices() -> None:
    item = {"metadata": {"uid": "u", "namespace": "ns", "name": "a"}}

    assert read_claim(item) == ResourceClaim("u", "ns", "a")


@pytest.mark.parametrize("item", [None, {}, {"metadata": {}}, [], {"metadata": {"uid": "u"}}])
def test_what_is_no_claim_is_told_so(item: Any) -> None:
    with pytest.raises(NotAClaim):
        read_claim(item)


def opaque(requests: list[str], **parameters: Any) -> Any:
    parameters = KIND | parameters
    return {"requests": requests, "opaque": {"driver": "gpu.tencent.com", "parameters": parameters}}


@pytest.mark.parametrize(
    ("rows", "request_", "ceiling"),
    [
        ([], "g", None),
        ([opaque([], coreLimit=50)], "g", 50),
        ([opaque([], coreLimit=50), opaque(["g"], coreLimit=90)], "g", 90),
        ([opaque([], coreLimit=50), opaque(["h"], coreLimit=90)], "g", 50),
        ([opaque([], coreLimit=50), opaque(["g"], policy="binpack")], "g", 50),
        ([opaque(["g"], coreLimit=50)], "g/t0", 50),
        ([opaque(["g/t1"], coreLimit=50)], "g/t0", None),
        ([opaque(["g/t0"], coreLimit=50)], "g/t0", 50),
    ],
)
def test_the_last_parameters_for_a_request_count(
    rows: list[Any], request_: str, ceiling: int | None
) -> None:
    claim = read_claim(claim_item("a", result("gpu-1", 30, "1Gi", request_), config=rows))

    assert claim.config(request_).ceiling == ceiling


def test_parameters_of_another_driver_are_passed_over() -> None:
    row = {"opaque": {"driver": "nic.example.com", "parameters": {"kind": "Other"}}}

    assert read_claim(claim_item("a", config=[row])).configs == ()


def test_parameters_that_mean_nothing_are_no_claim() -> None:
    with pytest.raises(NotAClaim, match=r"coreLimits: unknown field; did you mean coreLimit\?"):
        read_claim(claim_item("a", config=[opaque([], coreLimits=50)]))


@pytest.mark.parametrize(
    ("parameters", "config"),
    [
        ({}, VcudaConfig()),
        ({"coreLimit": 60}, VcudaConfig(60)),
        ({"profile": "latency"}, VcudaConfig()),  # of an earlier version
        ({"policy": "binpack"}, VcudaConfig(policy="binpack")),
    ],
)
def test_parameters_are_read(parameters: dict[str, Any], config: VcudaConfig) -> None:
    assert read_vcuda_config(KIND | parameters) == config


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (None, "not an object"),
        ([], "not an object"),
        ({}, "another kind"),
        (KIND | {"kind": "Other"}, "another kind"),
        (KIND | {"coreLimit": 0}, "coreLimit"),
        (KIND | {"coreLimit": 101}, "coreLimit"),
        (KIND | {"coreLimit": True}, "coreLimit"),
        (KIND | {"coreLimit": "60"}, "coreLimit"),
        (KIND | {"policy": "bin-pack"}, "policy"),
        (KIND | {"policy": 3}, "policy"),
        (KIND | {"burst": 3}, "burst: unknown field; there are coreLimit, policy"),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused_by_name(parameters: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_vcuda_config(parameters)


def test_a_device_keeps_the_name_of_its_gpu() -> None:
    """The scheduler's books go by it: it must never change between versions."""
    assert device_name(GpuUUID("GPU-0000000a")) == "gpu-627a5f2d20a5342d"


def test_what_containers_use_is_read_by_the_claims_real_names() -> None:
    item = pod_item("p", {"x": [("one", ""), ("two", "r")], "y": [("two", "r")]})
    item["spec"]["resourceClaims"][1] = {"name": "two", "resourceClaimTemplateName": "t"}
    item["status"] = {"resourceClaimStatuses": [{"name": "two", "resourceClaimName": "p-two-x7"}]}
    item["spec"]["initContainers"] = [
        {"name": "init", "resources": {"claims": [{"name": "one", "request": "q"}]}}
    ]

    assert read_pod_claims(item).uses == (
        ClaimUse("init", "one", "q"),
        ClaimUse("x", "one", ""),
        ClaimUse("x", "p-two-x7", "r"),
        ClaimUse("y", "p-two-x7", "r"),
    )


def test_a_claim_of_an_extended_resource_is_used_by_the_containers_that_the_status_names() -> None:
    item = pod_item("p", {})
    item["status"] = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "p-extended-resources-x",
            "requestMappings": [
                {"containerName": "main", "resourceName": "r", "requestName": "container-0"}
            ],
        }
    }

    assert read_pod_claims(item).uses == (
        ClaimUse("main", "p-extended-resources-x", "container-0"),
    )


def test_a_pod_without_claims_uses_none() -> None:
    assert read_pod_claims(pod_item("p", {"main": []})).uses == ()
