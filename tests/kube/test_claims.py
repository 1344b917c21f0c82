"""ResourceClaims, ResourceSlices, and what pods use of claims, read from JSON objects."""

import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.claims import (
    AllocatedDevice,
    ClaimUse,
    NotAClaim,
    ResourceClaim,
    device_name,
    is_allocated,
    list_configs,
    list_devices,
    list_requests,
    list_results,
    list_users,
    read_claim,
    read_pod_claims,
    read_slice,
)
from gpumanager.kube.vcuda_config import VcudaConfig, read_vcuda_config
from gpumanager.placement.values import FreeGpu
from tests.dra.claim_node import claim_item, pod_item, result
from tests.sim.claims.claim_objects import asked, claim, gpu, request, slice_of

Read = Callable[[Any], Any]

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


def opaque(requests: list[str], **parameters: Any) -> Any:
    parameters = KIND | parameters
    return {"requests": requests, "opaque": {"driver": "gpu.tencent.com", "parameters": parameters}}


def requesting(amounts: dict[str, Any], **more: Any) -> Any:
    one = {"deviceClassName": "gpu", "capacity": {"requests": amounts}, **more}
    return {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": one}]}}}


def offering(**device: Any) -> Any:
    return slice_of("n", gpu(0) | device)


@pytest.mark.parametrize(
    ("read", "item", "text"),
    [
        (read_claim, None, "no ResourceClaim"),
        (read_claim, [], "no ResourceClaim"),
        (read_claim, {}, "no ResourceClaim (KeyError('metadata'))"),
        (read_claim, {"metadata": {"uid": "u"}}, "no ResourceClaim (KeyError('namespace'))"),
        (list_devices, {"status": 3}, "no ResourceClaim"),
        (list_devices, claim_item("a", {"device": "gpu-1"}), "no ResourceClaim"),
        (list_users, {"status": {"reservedFor": ["p"]}}, "no ResourceClaim"),
        (list_requests, requesting({"cores": "many"}), "capacity cores: 'many' is no amount"),
        (list_requests, requesting({"memory": "-1"}), "capacity memory: '-1' is no amount"),
        (list_requests, requesting({"memory": "1e999999999"}), "is no amount"),
        (list_requests, requesting({}, count="two"), "no ResourceClaim"),
        (list_requests, requesting({}, selectors=[{"cel": {"x": 1}}]), "no list of selectors"),
        (list_configs, {"config": ["parameters"]}, "no VcudaConfig"),
        (read_slice, {"spec": {}}, "no ResourceSlice (KeyError('driver'))"),
        (read_slice, offering(capacity={}), "no ResourceSlice (KeyError('memory'))"),
        (read_slice, offering(capacity={"memory": {"value": "all"}}), "'all' is no amount"),
        (read_pod_claims, {"metadata": {}}, "no Pod (KeyError('uid'))"),
    ],
)
def test_what_is_not_understood_is_told_so(read: Read, item: Any, text: str) -> None:
    with pytest.raises(NotAClaim, match=re.escape(text)):
        read(item)


def places(item: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(item, dict | list):
        for key, value in item.items() if isinstance(item, dict) else enumerate(item):
            yield from places(value, (*path, key))


def with_poison(item: Any, path: tuple[Any, ...], poison: Any) -> Any:
    if not path:
        return poison
    changed = copy.copy(item)
    changed[path[0]] = with_poison(item[path[0]], path[1:], poison)
    return changed


POISON = [None, [], {}, "", "x", 0, -1, 1.5, float("inf"), float("nan"), True, ["x"], {"x": [1]}]


def whole_claim() -> Any:
    tolerations = [{"key": "k", "operator": "Exists"}]
    selectors = [{"cel": {"expression": "true"}}]
    one = asked(30, "2Gi", tolerations=tolerations, selectors=selectors)
    requests = [{"name": "g", "firstAvailable": [{"name": "a", **one}]}, request("h", 10, "1Gi")]
    allocated = claim_item("a", result("gpu-1", 30, "1Gi"), pods=["p"], config=[opaque(["gpu"])])
    return claim(*requests, config=[opaque(["g"], policy="binpack")]) | allocated


def whole_pod() -> Any:
    pod = pod_item("p", {"x": [("one", "r")]})
    mapping = {"containerName": "x", "resourceName": "r", "requestName": "q"}
    pod["status"] = {
        "resourceClaimStatuses": [{"name": "one", "resourceClaimName": "two"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": [mapping]},
    }
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]
    pod["spec"]["containers"][0]["resources"]["limits"] = {"tencent.com/vcuda-core": "3"}
    return pod


@pytest.mark.parametrize(
    ("item", "readers"),
    [
        (whole_claim(), (read_claim, list_requests, list_results, is_allocated)),
        (
            slice_of("n", gpu(0) | {"taints": [{"key": "k", "effect": "NoSchedule"}]}),
            (read_slice,),
        ),
        (whole_pod(), (read_pod_claims,)),
    ],
)
def test_a_poisoned_object_raises_nothing_else(item: Any, readers: tuple[Read, ...]) -> None:
    """Whatever stands in any one place of it."""
    for read in readers:
        assert read(item), "as it is, it is understood"
        for path in places(item):
            for poison in POISON:
                with contextlib.suppress(NotAClaim):
                    read(with_poison(item, path, poison))


def test_requests_are_read_with_their_alternatives_in_order() -> None:
    found = list_requests(whole_claim())

    (first,), (second,) = found["g"], found["h"]
    assert (first.name, first.cores, first.blocks) == ("g/a", 30, 8)
    assert first.selectors == ("true",)
    assert first.tolerations == ({"key": "k", "operator": "Exists"},)
    assert (second.name, second.count, second.cores, second.blocks) == ("h", 1, 10, 4)
    assert second.amounts == (("cores", "10"), ("memory", "1Gi"))


def test_users_of_a_claim_are_pods_alone() -> None:
    users = [
        {"resource": "pods", "name": "p", "uid": "1"},
        {"resource": "jobs", "name": "j", "uid": "2"},
        {"resource": "pods", "apiGroup": "example.com", "name": "q", "uid": "3"},
    ]

    assert [one.name for one in list_users({"status": {"reservedFor": users}})] == ["p"]


def test_amounts_that_are_asked_for_are_rounded_upwards() -> None:
    ((found,),) = list_requests(requesting({"cores": "1500m", "memory": "300Mi"})).values()

    assert (found.cores, found.blocks) == (2, 2)


def test_a_slice_of_another_driver_is_none() -> None:
    theirs = slice_of("n", gpu(0))
    theirs["spec"]["driver"] = "nic.example.com"

    assert read_slice(theirs) is None


def test_devices_that_claims_hold_are_not_free() -> None:
    node = read_slice(slice_of("n", gpu(0), gpu(1)))
    assert node is not None

    left = node.less(
        [AllocatedDevice("g", "gpu-1", "n", "s", 30, 8), AllocatedDevice("g", "x", "n")]
    )

    assert [one.free for one in left] == [FreeGpu(100, 64, 0, 64), FreeGpu(70, 56, 1, 64)]
    assert [one.uuid for one in left] == ["GPU-0", "GPU-1"]


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


def test_what_later_parameters_do_not_say_is_that_of_earlier_ones() -> None:
    assert VcudaConfig(60).over(VcudaConfig(50, "binpack")) == VcudaConfig(60, "binpack")
    assert VcudaConfig(policy="spread").over(VcudaConfig(50, "binpack")) == VcudaConfig(
        50, "spread"
    )


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
