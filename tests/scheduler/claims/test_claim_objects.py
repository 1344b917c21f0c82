"""What the extender reads of claims, slices and classes."""

from typing import Any

import pytest

from gpumanager.kube.claims import AllocatedDevice, NodeSlice, read_slice
from gpumanager.placement.preference import Preference
from gpumanager.placement.values import FreeGpu, Request
from gpumanager.scheduler.claims.cache import (
    offered,
    read_asking_claim,
    read_class,
)
from tests.scheduler.claims.claim_texts import opaque
from tests.sim.claims.claim_objects import asked, claim, device_class, gpu, request, slice_of


def read(node: Any) -> NodeSlice:
    found = read_slice(node)
    assert found is not None
    return found


FIRST = {"name": "gpu", "firstAvailable": [{"name": "a", **asked(20, "1Gi")}, {"name": "b"}]}


@pytest.mark.parametrize(
    ("wanted", "requests"),
    [
        (request("gpu", 30, "2Gi"), [Request(30, 8)]),
        (request("gpu", 30, "300Mi"), [Request(30, 2)]),
        (request("gpu", 30, "2Gi", count=2), [Request(30, 8), Request(30, 8)]),
        (request("gpu"), [Request(100)]),
        (request("gpu", count=4), [Request(400)]),
        (request("gpu", None, "2Gi"), [Request(100, 8)]),
        (request("gpu", 30), [Request(100)]),
        (request("gpu", 250, "2Gi"), [Request(100, 8)]),
        (FIRST, [Request(20, 4)]),
        (request("gpu", 1, "256Mi", adminAccess=True), []),
        (request("gpu", allocationMode="All"), []),
    ],
)
def test_a_request_is_what_it_takes_of_gpus(wanted: Any, requests: list[Request]) -> None:
    found = read_asking_claim(claim(wanted))

    assert [one for _, one in found.requests] == requests
    assert not found.allocated


@pytest.mark.parametrize("amount", ["", "much", "-1", "1e999999999"])
def test_what_is_no_amount_is_no_claim(amount: str) -> None:
    wanted = request("gpu", 30, "2Gi")
    wanted["exactly"]["capacity"]["requests"]["memory"] = amount

    with pytest.raises(ValueError, match="is no amount"):
        read_asking_claim(claim(wanted))


def test_what_claims_hold_is_not_offered() -> None:
    taints = [{"key": "gpu.tencent.com/unhealthy", "effect": "NoSchedule"}]
    node = read(slice_of("n", gpu(3), gpu(1), {**gpu(0), "taints": taints}))
    result = {"request": "gpu", "driver": "gpu.tencent.com", "pool": "n", "device": "gpu-1"}
    consumed = {"consumedCapacity": {"cores": "30", "memory": "2Gi"}}
    other = {**result, "driver": "net.example.com"}
    seen = {**result, "adminAccess": True}
    allocation = {"devices": {"results": [{**result, **consumed}, other, seen]}}
    found = read_asking_claim({**claim(request()), "status": {"allocation": allocation}})

    assert found.held == (AllocatedDevice("gpu", "gpu-1", "n", None, 30, 8),)
    assert offered(node, found.held).gpus == (
        FreeGpu(100, 64, 0, 64),
        FreeGpu(70, 56, 1, 64),
        FreeGpu(0, 0, 0, 64),
    )


def test_a_device_without_amounts_is_held_whole() -> None:
    node = read(slice_of("n", gpu(0)))

    assert offered(node, [AllocatedDevice("gpu", "gpu-0", "n")]).gpus == (FreeGpu(0, 0, 1, 64),)


def test_a_class_is_ours_that_names_our_driver() -> None:
    other = device_class("other")
    other["spec"]["selectors"][0]["cel"]["expression"] = "device.driver == 'net.example.com'"

    assert read_class(device_class()) is not None
    assert read_class(other) is None
    assert read_class({"metadata": {"name": "any"}, "spec": {}}) is None


def test_a_claim_with_parameters_that_the_driver_refuses_counts_without_a_policy() -> None:
    result = {"request": "gpu", "driver": "gpu.tencent.com", "pool": "n", "device": "gpu-1"}
    allocation = {"devices": {"results": [result]}}
    for wrong in (opaque(policy="bin-pack"), opaque(coreLimits=50, policy="binpack")):
        asking = claim(request(), config=[opaque(policy="spread"), wrong])

        found = read_asking_claim({**asking, "status": {"allocation": allocation}})

        assert found.preference == Preference()
        assert [one.name for one in found.held] == ["gpu-1"]
