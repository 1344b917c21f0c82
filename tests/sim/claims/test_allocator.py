"""Which devices claims are given, and how much of them."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpumanager.sim.claims.allocator import CannotAllocate, allocate, allocated_devices
from gpumanager.sim.claims.selectors import SelectorFailed
from gpumanager.sim.claims.slices import read_slice
from tests.sim.claims.claim_objects import (
    DRIVER,
    asked,
    claim,
    device_class,
    eight,
    gpu,
    node,
    request,
    slice_of,
)


class Books:
    """What was allocated so far on the node `n`."""

    def __init__(self, *slices: dict[str, Any]) -> None:
        self.slices: Sequence[dict[str, Any]] = slices or (eight(),)
        self.allocated: list[Any] = []

    def allocate(self, *claims: dict[str, Any]) -> list[str] | None:
        """Names of the devices, each with what is consumed of it."""
        found = allocate(
            node(),
            claims,
            {"gpu": device_class()},
            [read_slice(one) for one in self.slices],
            allocated_devices(self.allocated),
        )
        if found is None:
            return None
        self.allocated += found
        return [_shown(one) for each in found for one in each["devices"]["results"]]


def _shown(result: dict[str, Any]) -> str:
    consumed = result.get("consumedCapacity", {})
    return f"{result['device']} {consumed.get('cores')} {consumed.get('memory')}"


def share(cores: int, memory: str = "2Gi") -> dict[str, Any]:
    return claim(request("gpu", cores, memory))


def match(attribute: str, kind: str = "matchAttribute") -> dict[str, Any]:
    return {"constraints": [{kind: f"{DRIVER}/{attribute}"}]}


def names(found: list[str] | None) -> list[str] | None:
    return None if found is None else [one.partition(" ")[0] for one in found]


def test_shares_go_to_the_first_gpu_with_room() -> None:
    books = Books()

    found = [books.allocate(share(30)) for _ in range(25)]

    expected = [[f"gpu-{index} 30 2Gi"] for index in range(8) for _ in range(3)]
    assert found == [*expected, None]
    assert books.allocate(share(10)) == ["gpu-0 10 2Gi"]


def test_amounts_are_rounded_up_to_the_step() -> None:
    assert Books().allocate(share(7, "300Mi")) == ["gpu-0 7 512Mi"]


def test_what_is_not_asked_for_is_the_default() -> None:
    books = Books()

    assert books.allocate(claim(request())) == ["gpu-0 100 16Gi"]
    assert books.allocate(claim(request("gpu", None, "1Gi"))) == ["gpu-1 100 1Gi"]


def test_more_than_a_gpu_has_waits() -> None:
    assert Books().allocate(share(101)) is None
    assert Books().allocate(share(1, "17Gi")) is None


def test_the_order_of_the_slice_is_the_order_of_allocation() -> None:
    books = Books(eight(order=(5, 0, 7, 3, 6, 2, 1, 4)))
    books.allocate(share(30))

    assert names(books.allocate(claim(request("gpu", count=4)))) == [
        "gpu-0",
        "gpu-7",
        "gpu-3",
        "gpu-6",
    ]


def test_gpus_of_one_numa_node_are_found_behind_one_in_use() -> None:
    books = Books()
    books.allocate(share(30))

    four = claim(request("gpu", count=4), **match("numa"))

    assert names(books.allocate(four)) == ["gpu-4", "gpu-5", "gpu-6", "gpu-7"]
    assert books.allocate(four) is None


def test_two_requests_of_a_claim_share_a_gpu_unless_they_must_differ() -> None:
    two = (request("a", 30, "2Gi"), request("b", 30, "2Gi"))

    assert names(Books().allocate(claim(*two))) == ["gpu-0", "gpu-0"]
    different = claim(*two, **match("uuid", "distinctAttribute"))
    assert names(Books().allocate(different)) == ["gpu-0", "gpu-1"]


def test_devices_of_one_request_always_differ() -> None:
    assert names(Books().allocate(claim(request("gpu", 30, "2Gi", count=2)))) == ["gpu-0", "gpu-1"]


def test_the_first_alternative_that_fits_is_taken() -> None:
    free = {0: 100, 1: 40, 2: 30}
    books = Books(slice_of("n", *(gpu(index, free=one) for index, one in free.items())))
    tight = [
        {"cel": {"expression": f"device.attributes['{DRIVER}'].free <= {most}"}}
        for most in (30, 45)
    ]
    alternatives = [
        {"name": f"t{index}", **asked(30, "2Gi", selectors=[one])}
        for index, one in enumerate(tight)
    ]
    best = claim(
        {"name": "gpu", "firstAvailable": [*alternatives, {"name": "any", **asked(30, "2Gi")}]}
    )
    classes, slices = {"gpu": device_class()}, [read_slice(one) for one in books.slices]

    (found,) = allocate(node(), [best], classes, slices, allocated_devices([])) or ()
    assert [one["request"] for one in found["devices"]["results"]] == ["gpu/t0"]
    assert [names(books.allocate(best)) for _ in range(7)] == [
        *[["gpu-2"]] * 3,
        *[["gpu-1"]] * 3,
        ["gpu-0"],
    ]


def test_every_device_is_all_that_are_selected_or_none() -> None:
    every = claim({"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})
    books = Books()

    assert len(books.allocate(every) or ()) == 8
    assert books.allocate(every) is None


def test_admin_access_takes_nothing_but_needs_room_for_what_it_asks() -> None:
    """As in Kubernetes 1.37: who only watches has to ask for little."""
    books = Books(slice_of("n", gpu(0)))
    books.allocate(share(90))
    watching = claim(request("gpu", 1, "256Mi", adminAccess=True))

    assert books.allocate(claim(request("gpu", adminAccess=True))) is None
    assert [books.allocate(watching) for _ in range(20)] == [["gpu-0 1 256Mi"]] * 20


def test_a_tainted_device_is_for_those_who_tolerate_it() -> None:
    taint = {"key": "xid", "value": "79", "effect": "NoSchedule"}
    books = Books(slice_of("n", gpu(0) | {"taints": [taint]}, gpu(1)))
    tolerant = [{"key": "xid", "operator": "Exists"}]

    assert names(books.allocate(share(30))) == ["gpu-1"]
    assert names(books.allocate(claim(request("gpu", 30, "2Gi", tolerations=tolerant)))) == [
        "gpu-0"
    ]


def test_a_pool_with_a_missing_slice_gives_nothing() -> None:
    assert Books(slice_of("n", gpu(0), resourceSliceCount=2)).allocate(share(30)) is None


def test_of_two_generations_the_newer_counts() -> None:
    old = slice_of("n", gpu(0), name="a")
    new = slice_of("n", gpu(4), name="b", generation=2)

    assert names(Books(old, new).allocate(share(30))) == ["gpu-4"]


def test_what_is_allocated_is_remembered_by_pool_and_device_alone() -> None:
    books = Books(slice_of("n", gpu(0)))
    books.allocate(share(90))

    books.slices = [slice_of("n", gpu(0), gpu(1), name="renamed", generation=2)]
    assert names(books.allocate(share(90))) == ["gpu-1"]
    books.slices = [slice_of("n", gpu(0)) | {"metadata": {"name": "x"}}]
    books.slices[0]["spec"]["pool"]["name"] = "another"
    assert names(books.allocate(share(90))) == ["gpu-0"]


def test_pools_come_by_name() -> None:
    whole, shares = slice_of("n", gpu(0), name="1"), slice_of("n", gpu(1), name="2")
    whole["spec"]["pool"]["name"], shares["spec"]["pool"]["name"] = "b-whole", "a-shares"

    assert names(Books(whole, shares).allocate(claim(request("gpu", count=2)))) == [
        "gpu-1",
        "gpu-0",
    ]


def test_sets_of_gpus_and_shares_exclude_one_another_by_counters() -> None:
    def takes(*gpus: int) -> dict[str, Any]:
        counters = {f"gpu-{index}": {"value": "1"} for index in gpus}
        return {"consumesCounters": [{"counterSet": "gpus", "counters": counters}]}

    counters = slice_of("n", name="n-0", resourceSliceCount=3)
    counters["spec"]["sharedCounters"] = [
        {"name": "gpus", "counters": {f"gpu-{index}": {"value": "1"} for index in range(4)}}
    ]
    pairs = [{"name": f"set-{one}-{one + 1}", **takes(one, one + 1)} for one in (0, 2)]
    single = [gpu(index) | takes(index) for index in range(4)]
    books = Books(
        counters,
        slice_of("n", *pairs, name="n-1", resourceSliceCount=3),
        slice_of("n", *single, name="n-2", resourceSliceCount=3),
    )
    pair = claim(
        request("set", selectors=[{"cel": {"expression": "!device.allowMultipleAllocations"}}])
    )

    assert [names(books.allocate(share(30))) for _ in range(2)] == [["gpu-0"]] * 2
    assert names(books.allocate(pair)) == ["set-2-3"]
    assert books.allocate(pair) is None
    assert [names(books.allocate(share(30))) for _ in range(2)] == [["gpu-0"], ["gpu-1"]]


def test_several_claims_of_a_pod_are_allocated_together_or_not_at_all() -> None:
    books = Books(slice_of("n", gpu(0), gpu(1)))
    first, second = share(60), claim(request("gpu", count=1), name="whole")

    assert names(books.allocate(first, second)) == ["gpu-0", "gpu-1"]
    assert books.allocate(share(30), second) is None


def test_a_wrong_selector_ends_the_search() -> None:
    selector = [{"cel": {"expression": f"device.attributes['{DRIVER}'].nope == 3"}}]

    with pytest.raises(SelectorFailed, match=r"on device gpu-0: .*nope"):
        Books().allocate(claim(request("gpu", selectors=selector)))


def test_an_unknown_class_ends_the_search() -> None:
    with pytest.raises(CannotAllocate, match="device class none does not exist"):
        Books().allocate(claim(request("gpu", deviceClassName="none")))


def test_more_than_32_devices_are_more_than_a_claim_can_have() -> None:
    with pytest.raises(CannotAllocate, match="more than 32 devices"):
        Books().allocate(claim(request("a", count=20), request("b", count=20)))


def test_an_allocation_names_its_node_its_shares_and_its_configuration() -> None:
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"coreLimit": 60}}}
    asking = claim(request("gpu", 30, "2Gi"), config=[{"requests": ["gpu"], **opaque}])
    classes, slices = {"gpu": device_class()}, [read_slice(eight())]

    (found,) = (
        allocate(node(), [asking], classes, slices, allocated_devices([]), share_id=lambda: "id")
        or ()
    )

    assert found == {
        "devices": {
            "results": [
                {
                    "request": "gpu",
                    "driver": DRIVER,
                    "pool": "n",
                    "device": "gpu-0",
                    "shareID": "id",
                    "consumedCapacity": {"cores": "30", "memory": "2Gi"},
                }
            ],
            "config": [{"source": "FromClaim", **opaque}],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]
        },
    }
