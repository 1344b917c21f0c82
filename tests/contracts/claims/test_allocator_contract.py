"""The simulated allocator against kube-scheduler's own, on clusters of every shape."""

import json
from collections import Counter
from typing import Any

import pytest

from gpumanager.sim.claims.allocator import CannotAllocate, allocate, allocated_devices
from gpumanager.sim.claims.quantities import NotRepresentable
from gpumanager.sim.claims.selectors import SelectorFailed, matches
from gpumanager.sim.claims.slices import read_slice
from tests.contracts.claims.kube_scheduler import answers
from tests.contracts.claims.made_up_clusters import Cluster, cluster
from tests.e2e.node.node_programs import CannotBuild

SEEDS = range(1000)
DRIVER = "gpu.tencent.com"
ERROR = "an error"
OF_ONE_NODE = "invalid resource pools were encountered"
"""No error: only this node has none."""

DEVICE: dict[str, Any] = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "attributes": {
        "free": {"int": 30},
        "model": {"string": "A100"},
        "good": {"bool": True},
        "version": {"version": "12.8.0"},
    },
    "capacity": {"memory": {"value": "16Gi"}},
}

EXPRESSIONS = (
    "device.driver == 'gpu.tencent.com'",
    "device.driver == 'another'",
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "device.nope",
    "nope == 3",
    "3",
    "A.free <= 30",
    "A.free <= 30.0",
    "A.free < 30u",
    "A.free -1 == 29",
    "A['free'] == 30",
    "A.free == 30.5",
    "A.free > 'a'",
    "A.free % 4 == 2 && -7 / 2 == -3 && -7 % 2 == -1",
    "A.free + 9223372036854775807 > 0",
    "A.free in [30, 40]",
    "A.free",
    "A.free || true",
    "A.free && true",
    "A.free ? true : false",
    "A.good",
    "A.good == 1",
    "A.good ? true : false",
    "A.model",
    "A.model == 3",
    "A.model.startsWith('A') && A.model.matches('^A[0-9]+$')",
    "A.model.lowerAscii() == 'a100'",
    "A.nope == 3",
    "A.nope == 3 || true",
    "A.nope && false",
    "A.all(k, k != 'x')",
    "A.exists_one(k, k == 'free')",
    "has(A.free) && !has(A.nope) && 'free' in A",
    "device.attributes['x'].y == 3",
    "has(device.attributes['x'].y)",
    "'x' in device.attributes",
    "device.attributes.exists(k, k == 'gpu.tencent.com')",
    "cel.bind(a, A, a.free > 1 && a.good)",
    "cel.bind(a, cel.bind(b, device.driver, b), a == 'gpu.tencent.com')",
    "cel.bind(a, A, a.nope == 3 || a.good)",
    "A.version.compareTo(semver('12.4.0')) >= 0",
    "A.version == semver('12.8.0')",
    "A.version > 3",
    "semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))",
    "C.memory.compareTo(quantity('2Gi')) >= 0",
    "C.memory.compareTo(quantity('20Gi')) >= 0",
    "C.memory == quantity('16384Mi')",
    "C.memory > 3",
    "C.memory.isGreaterThan(quantity('2Gi'))",
    "C.memory.sub(quantity('1Gi')) == quantity('15Gi')",
    "C.memory.asInteger() > 5",
    "C.nope.compareTo(quantity('2Gi')) >= 0",
    "quantity('x') == quantity('y')",
    "isQuantity('3x')",
    "quantity('100m').isInteger()",
    "size('é') == 1 && device.driver.size() == 15",
    "1 + 1.0 == 2",
    "device.driver == ",
)
"""A and C stand for the driver's own attributes and capacities."""


@pytest.fixture
def asked() -> Any:
    def ask(questions: list[Any]) -> list[Any]:
        try:
            return answers(questions)
        except CannotBuild as error:
            pytest.skip(str(error))

    return ask


def without_share_ids(allocations: Any) -> Any:
    """The same as it comes over JSON; that there is an ID is compared, not which."""
    found = json.loads(json.dumps(allocations))
    for allocation in found or ():
        for result in allocation["devices"].setdefault("results", []):
            if "shareID" in result:
                result["shareID"] = "…"
    return found


def simulated(made: Cluster) -> Any:
    classes = {one["metadata"]["name"]: one for one in made.classes}
    slices = [read_slice(one) for one in made.slices]
    try:
        found = allocate(made.node, made.claims, classes, slices, allocated_devices(made.allocated))
    except (CannotAllocate, NotRepresentable, SelectorFailed):
        return ERROR
    return without_share_ids(found)


def real(answer: Any) -> Any:
    error = answer.get("error", "")
    return ERROR if error and OF_ONE_NODE not in error else without_share_ids(answer["allocations"])


def test_claims_are_allocated_as_kube_scheduler_allocates_them(asked: Any) -> None:
    made = [cluster(seed) for seed in SEEDS]

    expected = [real(answer) for answer in asked([one.question() for one in made])]
    found = [simulated(one) for one in made]

    different = [seed for seed in SEEDS if found[seed] != expected[seed]]
    assert different == [], (found[different[0]], expected[different[0]])
    kinds = Counter("none" if one is None else ERROR if one == ERROR else "some" for one in found)
    assert kinds["some"] > 200
    assert kinds["none"] > 200
    assert kinds[ERROR] > 10


def test_selectors_select_as_kube_scheduler_s_do(asked: Any) -> None:
    full = [
        one.replace("A.", f"device.attributes['{DRIVER}'].")
        .replace("A[", f"device.attributes['{DRIVER}'][")
        .replace("in A", f"in device.attributes['{DRIVER}']")
        .replace(", A,", f", device.attributes['{DRIVER}'],")
        .replace("C.", f"device.capacity['{DRIVER}'].")
        for one in EXPRESSIONS
    ]
    spec = {"driver": DRIVER, "pool": {"name": "n", "resourceSliceCount": 1}, "devices": [DEVICE]}
    (device,) = read_slice({"metadata": {"name": "s"}, "spec": spec}).devices

    def selected(expression: str) -> object:
        try:
            return matches(expression, device)
        except SelectorFailed:
            return ERROR

    questions = [{"expression": one, "driver": DRIVER, "device": DEVICE} for one in full]
    expected = {
        one: ERROR if answer.get("error") else answer["matches"]
        for one, answer in zip(full, asked(questions), strict=True)
    }
    assert {one: selected(one) for one in full} == expected
    assert set(expected.values()) == {True, False, ERROR}
