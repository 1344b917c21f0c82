"""Why a claim is not allocated: each reason by name, with an example, and no node that fits."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpumanager.dra.unallocated import (
    TOGETHER,
    ClusterGpus,
    NodesWithout,
    offered_gpus,
    why_not_allocated,
)
from gpumanager.kube.claims import OfferedGpu
from tests.sim.claims.claim_objects import asked, gpu, request, slice_of

CLASSES: Mapping[str, tuple[str, ...]] = {"gpu": ()}
TAINT = {"key": "gpu.tencent.com/unhealthy", "value": "true", "effect": "NoSchedule"}


def claim(*requests: Mapping[str, Any]) -> dict[str, Any]:
    return {"spec": {"devices": {"requests": list(requests)}}}


def holding(node: str, device: str, cores: str, memory: str, **more: Any) -> dict[str, Any]:
    """A claim that was allocated so much."""
    consumed = {"cores": cores, "memory": memory}
    result = {"request": "gpu", "driver": "gpu.tencent.com", "pool": node, "device": device,
              "shareID": "s", "consumedCapacity": consumed, **more}  # fmt: skip
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def why(wanted: Mapping[str, Any], *held: Mapping[str, Any], **more: Any) -> list[NodesWithout]:
    """On nodes a and b, of two GPUs each."""
    slices = [slice_of(node, gpu(0), gpu(1)) for node in ("a", "b")]
    cluster = ClusterGpus(offered_gpus(slices, held), CLASSES, **more)
    return list(why_not_allocated(wanted, cluster))


def test_of_a_claim_that_fits_on_every_node_only_the_whole_can_be_the_reason() -> None:
    assert [one.reason for one in why(claim(request("gpu", 30, "2Gi")))] == [TOGETHER]


def test_cores_that_are_not_free_are_told_with_the_nearest_gpu() -> None:
    held = [
        holding(node, device, "60", "2Gi") for node in ("a", "b") for device in ("gpu-0", "gpu-1")
    ]
    held.append(holding("a", "gpu-0", "10", "1Gi"))

    (found,) = why(claim(request("gpu", 50, "2Gi")), *held)

    assert found == NodesWithout(
        "gpu", "no GPU with 50 cores and 2 GiB free", 2, "a",
        "the nearest, gpu-1, has 40 cores and 14 GiB free",
    )  # fmt: skip


def test_a_node_with_room_is_not_counted() -> None:
    held = [holding("a", device, "60", "2Gi") for device in ("gpu-0", "gpu-1")]

    (found,) = why(claim(request("gpu", 50, "2Gi")), *held)

    assert (found.nodes, found.example) == (1, "a")


def test_what_only_looks_holds_nothing() -> None:
    held = [
        holding(node, device, "100", "16Gi", adminAccess=True)
        for node in ("a", "b")
        for device in ("gpu-0", "gpu-1")
    ]

    assert [one.reason for one in why(claim(request("gpu", 50, "2Gi")), *held)] == [TOGETHER]


def test_without_capacity_a_whole_gpu_is_asked_for() -> None:
    held = [holding("a", device, "1", "256Mi") for device in ("gpu-0", "gpu-1")]

    (found,) = why(claim({"name": "gpu", "exactly": asked()}), *held)

    assert found.reason == "no GPU with all cores and all memory free"
    assert found.nodes == 1


def test_too_few_gpus_and_one_that_is_too_small_are_told_apart() -> None:
    (few,) = why(claim({"name": "gpu", "exactly": asked(30, "1Gi", count=3)}))
    (small,) = why(claim(request("gpu", 30, "17Gi")))

    assert few.reason == "fewer than 3 GPUs that class and selectors take"
    assert (small.reason, small.detail) == ("no GPU that is large enough", "its largest has 16 GiB")


def test_a_class_that_is_not_there_is_told() -> None:
    (found,) = why(claim({"name": "gpu", "exactly": {"deviceClassName": "gpus"}}))

    assert found.reason == "DeviceClass gpus does not exist"


def test_a_selector_that_takes_no_gpu_is_told_and_one_that_nobody_evaluates_is_not() -> None:
    wanted = claim({"name": "gpu", "exactly": asked(1, selectors=[{"cel": {"expression": "no"}}])})

    def selects(expression: str, _gpu: OfferedGpu) -> bool:
        return expression != "no"

    (found,) = why(wanted, selects=selects)
    assert found.reason == "no GPU that class gpu and the selectors take"
    wanted["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["memory"] = "1Gi"
    assert [one.reason for one in why(wanted)] == [TOGETHER]


@pytest.mark.parametrize(
    ("tolerations", "reasons"),
    [
        ([], ["GPUs out of use (tainted)"]),
        ([{"operator": "Exists"}], [TOGETHER]),
        ([{"key": TAINT["key"], "operator": "Exists", "effect": "NoSchedule"}], [TOGETHER]),
        ([{"key": TAINT["key"], "value": "true"}], [TOGETHER]),
        ([{"key": "other", "operator": "Exists"}], ["GPUs out of use (tainted)"]),
    ],
)
def test_a_taint_counts_unless_the_request_tolerates_it(
    tolerations: list[Any], reasons: list[str]
) -> None:
    slices = [slice_of("a", gpu(0) | {"taints": [TAINT]})]
    cluster = ClusterGpus(offered_gpus(slices, ()), CLASSES)
    wanted = {"name": "gpu", "exactly": asked(1, "1Gi", tolerations=tolerations)}

    assert [one.reason for one in why_not_allocated(claim(wanted), cluster)] == reasons


def test_of_alternatives_one_that_fits_is_enough_and_none_tells_each() -> None:
    def either(*names: str) -> dict[str, Any]:
        tried = [{"name": name, **asked(30, f"{name}Gi")} for name in names]
        return claim({"name": "gpu", "firstAvailable": tried})

    assert [one.reason for one in why(either("17", "1"))] == [TOGETHER]
    assert [one.request for one in why(either("17", "18"))] == ["gpu/17", "gpu/18"]


def test_a_claim_that_is_not_understood_is_passed_over() -> None:
    poisoned = [holding("a", "gpu-0", "many", "2Gi"), {"status": 3}]

    assert [one.reason for one in why(claim(request("gpu", 50, "2Gi")), *poisoned)] == [TOGETHER]
