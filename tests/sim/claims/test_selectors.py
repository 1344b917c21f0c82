"""Selectors without kube-scheduler beside them; tests/contracts/claims has more of them."""

from typing import Any

import pytest

from gpumanager.sim.claims.selectors import SelectorFailed, compiled, matches
from gpumanager.sim.claims.slices import PoolDevice, read_slice
from tests.sim.claims.claim_objects import gpu, slice_of

ATTRIBUTES = "device.attributes['gpu.tencent.com']"
CAPACITY = "device.capacity['gpu.tencent.com']"


@pytest.fixture
def device() -> PoolDevice:
    made: dict[str, Any] = gpu(5, free=30)
    made["attributes"]["version"] = {"version": "12.8.0"}
    (found,) = read_slice(slice_of("n", made)).devices
    return found


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("device.driver == 'gpu.tencent.com'", True),
        (f"{ATTRIBUTES}.free <= 30", True),
        (f"{ATTRIBUTES}.free < 30", False),
        (f"{CAPACITY}.memory.compareTo(quantity('2Gi')) >= 0", True),
        (f"{CAPACITY}.memory == quantity('16384Mi')", True),
        (f"{ATTRIBUTES}.version.isGreaterThan(semver('12.8.0-rc.1'))", True),
        (f"cel.bind(a, {ATTRIBUTES}, a.numa == 1 && a.nvlink == 2)", True),
        ("has(device.attributes['other.example.com'].free)", False),
        (f"{ATTRIBUTES}.uuid == 3", False),
        (f"{ATTRIBUTES}.free <= 30.5", True),
        (f"['gpu-5'].exists(word, {ATTRIBUTES}.uuid.lowerAscii().contains(word))", True),
    ],
)
def test_a_device_is_selected(device: PoolDevice, expression: str, *, selected: bool) -> None:
    assert matches(expression, device) is selected


@pytest.mark.parametrize(
    ("expression", "cause"),
    [
        (f"{ATTRIBUTES}.nope == 3", "nope"),
        ("device.attributes['other.example.com'].free == 3", "free"),
        (f"{ATTRIBUTES}.uuid > 3", "no matching overload"),
        (f"{ATTRIBUTES}.uuid", "is not a bool"),
    ],
)
def test_an_expression_without_an_answer_fails(
    device: PoolDevice, expression: str, cause: str
) -> None:
    with pytest.raises(SelectorFailed, match=cause):
        matches(expression, device)


@pytest.mark.parametrize(
    ("expression", "cause"),
    [
        ("device.driver ==", "device.driver =="),
        ("gpu.driver == 'x'", "undeclared reference to gpu"),
        ("device.name == 'x'", "undefined field name"),
        ("device.driver.charAt(0) == 'g'", r"charAt\(\) is not simulated"),
        ("'x' == '" + "x" * 11000 + "'", "more than 10240 characters"),
    ],
)
def test_an_expression_that_is_not_known_is_refused_when_it_is_read(
    expression: str, cause: str
) -> None:
    with pytest.raises(SelectorFailed, match=cause):
        compiled(expression)
