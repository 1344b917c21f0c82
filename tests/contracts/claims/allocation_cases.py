"""What claims are given of one node: the same of the simulated scheduler and of kube-scheduler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.sim.claims.claim_objects import DRIVER, asked, gpu, request

Object = Mapping[str, Any]
ATTRIBUTES: Final = f"device.attributes['{DRIVER}']"
MEMORY: Final = f"device.capacity['{DRIVER}'].memory"
_FREE: Final = f"{ATTRIBUTES}.freeCores"
_LOWER: Final = f"{ATTRIBUTES}.uuid.lowerAscii()"
_NONE: Final = f"{ATTRIBUTES}.nope"
EIGHT: Final = tuple(gpu(index) for index in range(8))


@dataclass(frozen=True)
class AllocationCase:
    """Claims, each of a pod of its own, one after the other, and what each is given.

    given: of each claim, rows as `gpu: gpu-0 30 2Gi`; None: its pod waits. devices: of the node's
    slice.
    """

    name: str
    claims: Sequence[Object]
    given: Sequence[Sequence[str] | None]
    devices: Sequence[Object] = field(default=EIGHT)


def shown(allocation: Object) -> list[str]:
    """Return the rows of a claim's `status.allocation`."""
    rows = []
    for one in allocation["devices"]["results"]:
        amounts = one["consumedCapacity"]
        rows.append(f"{one['request']}: {one['device']} {amounts['cores']} {amounts['memory']}")
    return rows


def _devices(*requests: Object, **more: Any) -> Object:
    return {"requests": requests, **more}


def _share(cores: int, memory: str = "2Gi", **more: Any) -> Object:
    return _devices(request("gpu", cores, memory, **more))


def _whole(count: int = 1, **more: Any) -> Object:
    return _devices(request("gpu", count=count), **more)


def _rule(kind: str, attribute: str, *requests: str) -> Object:
    named = {"requests": requests} if requests else {}
    return {"constraints": [{kind: f"{DRIVER}/{attribute}", **named}]}


def _cel(*expressions: str) -> Object:
    return {"selectors": [{"cel": {"expression": one}} for one in expressions]}


def _wholes(*indices: int) -> list[str]:
    return [f"gpu: gpu-{index} 100 16Gi" for index in indices]


def _selected(name: str, expression: str, *indices: int) -> AllocationCase:
    """All devices that an expression selects, as a monitor asks for them."""
    wanted = asked(1, "256Mi", allocationMode="All", **_cel(expression))
    del wanted["count"]
    rows = [f"gpu: gpu-{index} 1 256Mi" for index in indices]
    devices = tuple(gpu(index, freeCores=40 * index) for index in range(3))
    claim = _devices({"name": "gpu", "exactly": wanted})
    return AllocationCase(f"selector: {name}", [claim], [rows or None], devices)


_SHARED: Final = {"name": "shared", **asked(30, "2Gi", **_cel(f"{ATTRIBUTES}.freeCores < 100"))}
_TIERS: Final = {"name": "gpu", "firstAvailable": [_SHARED, {"name": "any", **asked(30, "2Gi")}]}
_ALL: Final = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
_TWO: Final = (request("a", 30, "2Gi"), request("b", 50, "2Gi"))
_TAINT: Final = {"key": "gpu.tencent.com/unhealthy", "value": "true", "effect": "NoSchedule"}
_TOLERATION: Final = {"key": "gpu.tencent.com/unhealthy", "operator": "Exists"}

CASES: Final = (
    AllocationCase(
        "first fit",
        [_share(30)] * 4 + [_share(10)],
        [["gpu: gpu-0 30 2Gi"]] * 3 + [["gpu: gpu-1 30 2Gi"], ["gpu: gpu-0 10 2Gi"]],
    ),
    AllocationCase("rounded up to steps", [_share(7, "300Mi")], [["gpu: gpu-0 7 512Mi"]]),
    AllocationCase("rounded up to the least", [_share(1, "1")], [["gpu: gpu-0 1 256Mi"]]),
    AllocationCase(
        "defaults",
        [_whole(), _devices(request("gpu", None, "1Gi")), _devices(request("gpu", 30))],
        [_wholes(0), ["gpu: gpu-1 100 1Gi"], ["gpu: gpu-2 30 16Gi"]],
    ),
    AllocationCase("more than there is", [_share(101), _share(1, "17Gi"), _whole(9)], [None] * 3),
    AllocationCase(
        "order of the slice",
        [_share(30), _whole(4)],
        [["gpu: gpu-5 30 2Gi"], _wholes(0, 7, 3, 6)],
        [gpu(index) for index in (5, 0, 7, 3, 6, 2, 1, 4)],
    ),
    AllocationCase(
        "one NUMA node behind a GPU in use",
        [_share(30), _whole(4, **_rule("matchAttribute", "numa"))],
        [["gpu: gpu-0 30 2Gi"], _wholes(4, 5, 6, 7)],
    ),
    AllocationCase("no pair of three", [_whole(3, **_rule("matchAttribute", "nvlink"))], [None]),
    AllocationCase(
        "requests share a GPU", [_devices(*_TWO)], [["a: gpu-0 30 2Gi", "b: gpu-0 50 2Gi"]]
    ),
    AllocationCase(
        "requests that must differ",
        [_devices(*_TWO, **_rule("distinctAttribute", "uuid"))],
        [["a: gpu-0 30 2Gi", "b: gpu-1 50 2Gi"]],
    ),
    AllocationCase(
        "a constraint of some requests",
        [_devices(*_TWO, request("c", count=1), **_rule("distinctAttribute", "numa", "a", "c"))],
        [["a: gpu-0 30 2Gi", "b: gpu-0 50 2Gi", "c: gpu-4 100 16Gi"]],
    ),
    AllocationCase(
        "devices of one request differ",
        [_share(30, count=2)],
        [["gpu: gpu-0 30 2Gi", "gpu: gpu-1 30 2Gi"]],
    ),
    AllocationCase(
        "the first alternative",
        [_devices(_TIERS)] * 4,
        [["gpu/shared: gpu-1 30 2Gi"]] * 3 + [["gpu/any: gpu-0 30 2Gi"]],
        [gpu(0, freeCores=100), gpu(1, freeCores=40), gpu(2, freeCores=100)],
    ),
    AllocationCase("all, or none", [_devices(_ALL), _devices(_ALL)], [_wholes(*range(8)), None]),
    AllocationCase(
        "admin access needs room and takes none",
        [
            _share(90),
            _devices(request("gpu", adminAccess=True, count=8)),
            *[_share(1, "256Mi", adminAccess=True)] * 2,
            _share(10),
        ],
        [
            ["gpu: gpu-0 90 2Gi"],
            None,
            *[["gpu: gpu-0 1 256Mi"]] * 2,
            ["gpu: gpu-0 10 2Gi"],
        ],
    ),
    AllocationCase(
        "taints",
        [_share(30), _share(30, tolerations=[_TOLERATION])],
        [["gpu: gpu-1 30 2Gi"], ["gpu: gpu-0 30 2Gi"]],
        [{**gpu(0), "taints": [_TAINT]}, gpu(1)],
    ),
    _selected("driver", f"device.driver == '{DRIVER}'", 0, 1, 2),
    _selected("less", f"{ATTRIBUTES}.freeCores < 80", 0, 1),
    _selected("more", f"{ATTRIBUTES}.freeCores > 0", 1, 2),
    _selected("equal", f"{ATTRIBUTES}.uuid == 'GPU-1'", 1),
    _selected("another kind", f"{ATTRIBUTES}.uuid == 3"),
    _selected("in", f'{ATTRIBUTES}.uuid in ["GPU-0", "GPU-2"]', 0, 2),
    _selected("not in", f'!({ATTRIBUTES}.uuid in ["GPU-0"])', 1, 2),
    _selected("words", f'["u-1", "u-2"].exists(word, {_LOWER}.contains(word))', 1, 2),
    _selected("no word", f'!["1"].exists(word, {_LOWER}.contains(word))', 0, 2),
    _selected("start", f"{ATTRIBUTES}.uuid.startsWith('GPU-2')", 2),
    _selected("memory", f"{MEMORY}.compareTo(quantity('16384Mi')) >= 0", 0, 1, 2),
    _selected("too much memory", f"{MEMORY}.compareTo(quantity('17Gi')) >= 0"),
    _selected("and, or", f"{_FREE} > 0 && {_FREE} < 80 || {ATTRIBUTES}.nvlink == 0", 0, 1),
    _selected("one answer of two", f"{_NONE} == 3 || {ATTRIBUTES}.numa == 0", 0, 1, 2),
    _selected("no answer", f"{_NONE} == 3"),
)
"""The last: selectors that the examples, the chart and the webhook write, and those like them."""
