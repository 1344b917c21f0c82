"""What the simulated API server takes of claims, classes and slices, and what it refuses."""

from typing import Any

import pytest

from gpumanager.sim.cluster.objects import Key, Object, Objects, StatusError
from gpumanager.sim.cluster.resource_rules import defaulted, problems
from tests.sim.claims.claim_objects import (
    DRIVER,
    claim,
    device_class,
    eight,
    gpu,
    request,
    slice_of,
)
from tests.sim.claims.rule_cases import ACCEPTED, REFUSED, REFUSED_SLICES

CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}
RESULT = {
    "request": "gpu",
    "driver": DRIVER,
    "pool": "n",
    "device": "gpu-0",
    "shareID": "92f0f0e4-0000-4000-8000-000000000000",
}
ALLOCATION: dict[str, Any] = {"devices": {"results": [RESULT]}}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_claim_is_taken(case: str) -> None:
    assert problems("resourceclaims", defaulted("resourceclaims", ACCEPTED[case])) == []


@pytest.mark.parametrize("case", REFUSED)
def test_a_claim_is_refused(case: str) -> None:
    made, cause = REFUSED[case]

    assert cause in "; ".join(problems("resourceclaims", made))


@pytest.mark.parametrize("case", REFUSED_SLICES)
def test_a_slice_is_refused(case: str) -> None:
    made, cause = REFUSED_SLICES[case]

    assert cause in "; ".join(problems("resourceslices", made))


def test_a_slice_of_128_gpus_is_taken() -> None:
    assert problems("resourceslices", slice_of("n", *(gpu(index) for index in range(128)))) == []


def test_a_class_with_an_extended_resource_is_taken() -> None:
    made = device_class()
    made["spec"]["extendedResourceName"] = "tencent.com/gpu"

    assert problems("deviceclasses", made) == []


class WrittenClaim:
    """One claim of a server, as it is written."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.key = Key("resourceclaims", "default", "c")
        self.objects.create(self.key, {**claim(request()), "status": {"allocation": ALLOCATION}})

    @property
    def now(self) -> Object:
        return self.objects.get(self.key)

    def write(self, **fields: Any) -> Object:
        return self.objects.update(self.key, {**self.now, **fields})

    def write_status(self, **status: Any) -> Object:
        return self.objects.update(self.key, {**self.now, "status": status}, status=True)

    def finalizers(self, *finalizers: str) -> Object:
        metadata = {**self.now["metadata"], "finalizers": list(finalizers)}
        return self.write(metadata=metadata)


@pytest.fixture
def written() -> WrittenClaim:
    return WrittenClaim()


def test_a_claim_is_made_without_a_status_and_with_defaults() -> None:
    objects = Objects()
    short = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}

    made = objects.create(Key("resourceclaims", "default", "c"), claim(short))

    (filled,) = made["spec"]["devices"]["requests"]
    assert filled["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    assert "status" not in WrittenClaim().now


def test_what_a_claim_asks_for_cannot_be_changed(written: WrittenClaim) -> None:
    with pytest.raises(StatusError, match="spec: field is immutable"):
        written.write(spec=claim(request("other"))["spec"])


def test_the_status_is_written_apart_from_the_rest(written: WrittenClaim) -> None:
    written.write_status(allocation=ALLOCATION, reservedFor=[CONSUMER])
    written.finalizers("a/b")

    assert written.now["status"]["allocation"] == ALLOCATION
    assert written.now["metadata"]["finalizers"] == ["a/b"]


def test_an_old_version_is_not_written_over_a_new_one(written: WrittenClaim) -> None:
    old = written.now
    written.finalizers("a/b")

    with pytest.raises(StatusError, match="resourceVersion"):
        written.objects.update(written.key, {**old, "status": {}}, status=True)


def test_an_allocation_stays_as_it_is_until_it_is_taken_away(written: WrittenClaim) -> None:
    written.write_status(allocation=ALLOCATION)
    other = {"devices": {"results": [RESULT | {"device": "gpu-1"}]}}

    with pytest.raises(StatusError, match="allocation: field is immutable"):
        written.write_status(allocation=other)
    written.write_status()
    written.write_status(allocation=other)

    assert written.now["status"]["allocation"] == other


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"reservedFor": [CONSUMER]}, "may not be specified when"),
        ({"allocation": ALLOCATION, "reservedFor": [CONSUMER, CONSUMER]}, "Duplicate value: 'u'"),
        (
            {
                "allocation": ALLOCATION,
                "reservedFor": [CONSUMER | {"uid": str(index)} for index in range(257)],
            },
            "at most 256",
        ),
        (
            {"allocation": {"devices": {"results": [RESULT | {"request": "x"}]}}},
            "'x' must be the name of a request",
        ),
        ({"allocation": {"devices": {"results": [RESULT] * 33}}}, "at most 32"),
        ({"allocation": ALLOCATION, "devices": [RESULT | {"device": "x"}]}, "x must be an alloc"),
    ],
)
def test_a_status_is_refused(written: WrittenClaim, status: dict[str, Any], cause: str) -> None:
    with pytest.raises(StatusError, match=cause):
        written.write_status(**status)


def test_what_a_driver_said_of_a_device_goes_with_its_allocation(written: WrittenClaim) -> None:
    said = [{key: RESULT[key] for key in ("driver", "pool", "device", "shareID")}]
    written.write_status(allocation=ALLOCATION, devices=said)

    written.write_status(devices=said)

    assert written.now["status"] == {}


def test_a_claim_with_finalizers_goes_with_the_last_of_them(written: WrittenClaim) -> None:
    written.finalizers("a/b", "c/d")

    written.objects.delete(written.key, {})
    deleted = written.now["metadata"]["deletionTimestamp"]
    written.finalizers("a/b")
    assert written.now["metadata"]["deletionTimestamp"] == deleted
    written.finalizers()

    with pytest.raises(StatusError, match="not found"):
        assert written.now


def test_a_slice_keeps_its_driver_its_node_and_its_pool() -> None:
    objects, key = Objects(), Key("resourceslices", "", eight()["metadata"]["name"])
    objects.create(key, eight())
    moved = eight("m") | {"metadata": {"name": key.name}}

    with pytest.raises(StatusError, match=r"nodeName: .* immutable; spec.pool.name: .* immutable"):
        objects.update(key, moved)
