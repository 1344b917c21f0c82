"""Selectors of devices; tests/contracts/claims compares their answers with kube-scheduler's."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumanager.kube.selectors import SelectorFailed, SelectorNotKnown, read_selector, selects
from gpumanager.scheduler.claims.template import ClaimShape, RequestShape
from tests.sim.claims.claim_objects import DRIVER, gpu

ROOT = Path(__file__).parents[2]
ATTRIBUTES = f"device.attributes['{DRIVER}']"
MEMORY = f"device.capacity['{DRIVER}'].memory"
DEVICE: Mapping[str, Any] = gpu(5) | {
    "attributes": {
        "uuid": {"string": "GPU-5"},
        "numa": {"int": 1},
        "cudaVersion": {"version": "12.8.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
    }
}


def selected(expression: str) -> bool:
    return selects(expression, DRIVER, DEVICE)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"  device.driver=='{DRIVER}'  ", True),
        (f"{ATTRIBUTES}.numa < 1 || {ATTRIBUTES}.numa >= 1 && {ATTRIBUTES}.uuid != 'x'", True),
        (f"({ATTRIBUTES}.numa == 1 || {ATTRIBUTES}.nope == 1) && !({ATTRIBUTES}.numa == 1)", False),
        ("device.attributes['resource.kubernetes.io'].pcieRoot.contains('0000')", True),
        (f"{MEMORY}.compareTo(quantity('16Gi')) == 0", True),
        (f"{ATTRIBUTES}.uuid in []", False),
        (f"{ATTRIBUTES}.uuid.lowerAscii() == 'gpu-5'", True),
        (f'{ATTRIBUTES}.uuid == "GPU\\u002d5"', True),
    ],
)
def test_a_device_is_selected(expression: str, *, expected: bool) -> None:
    assert selected(expression) is expected


@pytest.mark.parametrize(
    ("expression", "cause"),
    [
        (f"{ATTRIBUTES}.nope == 3", "on device gpu-5: no such key: nope"),
        ("device.attributes['other.example.com'].uuid == 'x'", "no such key: uuid"),
        (f"{ATTRIBUTES}.uuid > 3", "have no order"),
        (f"{ATTRIBUTES}.numa.contains('x')", "1 is no string"),
        (f"{ATTRIBUTES}.numa.lowerAscii() == 'x'", "numa is a int"),
        (f"{ATTRIBUTES}.cudaVersion == '12.8.0'", "cudaVersion is a version"),
        (f"{MEMORY}.compareTo(quantity('16 GB')) >= 0", "'16 GB' is no quantity"),
    ],
)
def test_an_expression_without_an_answer_fails(expression: str, cause: str) -> None:
    with pytest.raises(SelectorFailed, match=re.escape(cause)):
        selected(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "device.driver ==",
        "gpu.driver == 'x'",
        "device.name == 'x'",
        "device.driver == 3",
        'device.driver == "\\u12"',
        "device.driver.charAt(0) == 'g'",
        f"!{ATTRIBUTES}.numa == 1",
        f"{ATTRIBUTES}.numa == 1.5",
        f"{ATTRIBUTES}.numa == 1u",
        f"{ATTRIBUTES}.numa + 1 == 2",
        f"{ATTRIBUTES}.uuid == 'a' 'b'",
        f"{ATTRIBUTES}.uuid == r'a'",
        f"{ATTRIBUTES}.uuid == 'a' ? true : false",
        f"{ATTRIBUTES}.uuid.matches('^GPU')",
        f"{ATTRIBUTES}.cudaVersion.compareTo(semver('12.4.0')) >= 0",
        f"(device.driver == '{DRIVER}'",
        f"device.driver == '{DRIVER}') || (device.driver == 'x'",
        f"{MEMORY} >= quantity('1Gi')",
        f"has({ATTRIBUTES}.numa)",
        "device.driver == 'a\x00'",
        "device.driver == 'a\rb'",
        "(" * 5000 + "device.driver == 'x'" + ")" * 5000,
    ],
)
def test_an_expression_of_another_form_is_refused_and_never_true_or_false(expression: str) -> None:
    with pytest.raises(SelectorNotKnown):
        selected(expression)


def written() -> Iterator[str]:
    """Yield the selectors of examples, the chart, and the webhook's conversion."""
    for path in (ROOT / "examples" / "claims").glob("*.yaml"):
        for one in yaml.safe_load_all(path.read_text()):
            yield from _expressions(one)
    chart = (ROOT / "charts/gpu-manager/templates/claims/deviceclass.yaml").read_text()
    yield from re.findall(r'cel: {expression: "(.*)"}', chart)
    words = ("A-100", 'x"y', "é")
    wishes = dict.fromkeys(("models", "notModels", "uuids", "notUuids"), words)
    requests = (RequestShape("share", 30, 4), RequestShape("whole", 100, 64))
    yield from _expressions(ClaimShape(requests, wishes=wishes, tiers=True).template("default"))


def _expressions(item: Any) -> Iterator[str]:
    if isinstance(item, dict):
        yield from (one["cel"]["expression"] for one in item.get("selectors") or ())
    for one in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        yield from _expressions(one)


def test_what_we_write_is_read() -> None:
    found = set(written())

    assert {f"{ATTRIBUTES}.freeCores < 100", f"device.driver == '{DRIVER}'"} < found
    assert any("compareTo" in one for one in found)
    assert any(one.startswith("![") for one in found)
    for one in found:
        read_selector(one)
