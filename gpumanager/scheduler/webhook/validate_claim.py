"""Validates claims, claim templates and device classes, with messages for their author. Pure.

The API server accepts any opaque parameters. A request for more than any device has stays pending,
with no clearer message than "cannot allocate all claims". This module reports both, with the path
of the field. It ignores other drivers and other device classes.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gpumanager.kube.quantity import exact
from gpumanager.kube.vcuda_config import read_vcuda_config
from gpumanager.names import CAPACITY_CORES, CAPACITY_MEMORY, CLAIM_DEVICE_CLASS, CLAIM_DRIVER
from gpumanager.scheduler.webhook.nodes import NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, Unschedulable
from gpumanager.scheduler.webhook.review import Decision, Remark
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes

DEVICES: Final[Mapping[str, tuple[str, ...]]] = {
    "ResourceClaim": ("spec", "devices"),
    "ResourceClaimTemplate": ("spec", "spec", "devices"),
    "DeviceClass": ("spec",),
}
"""Where each kind has its requests and its parameters."""
CAPACITIES: Final = (CAPACITY_CORES, CAPACITY_MEMORY)
"""Of each device; a request for another is met by none."""


def validate_claim(
    kind: str, item: Any, policy: AdmissionPolicy, nodes: Collection[NodeKind] = ()
) -> Decision:
    """Validate one object. kind: one of DEVICES. Raises as `NOT_UNDERSTOOD` has it."""
    found, where = item, ".".join(DEVICES[kind])
    for name in DEVICES[kind]:
        found = found.get(name) or {}
    remarks = list[Remark]()
    for place, row in enumerate(found.get("config") or ()):
        opaque, path = row.get("opaque") or {}, f"{where}.config[{place}].opaque.parameters"
        if opaque.get("driver") == CLAIM_DRIVER:
            try:
                read_vcuda_config(opaque.get("parameters"), path)
            except ValueError as error:
                remarks.append(Remark(str(error)))
    for place, request in enumerate(found.get("requests") or ()):
        path = f"{where}.requests[{place}]"
        ways = {f"{path}.exactly": request.get("exactly") or {}}
        for index, one in enumerate(request.get("firstAvailable") or ()):
            ways[f"{path}.firstAvailable[{index}]"] = one
        for of, asked in ways.items():
            if asked.get("deviceClassName") == CLAIM_DEVICE_CLASS:
                remarks += _request(asked, of, policy, nodes)
    return Decision.by(remarks)


def _request(
    asked: Mapping[str, Any], where: str, policy: AdmissionPolicy, nodes: Collection[NodeKind]
) -> Iterator[Remark]:
    path = f"{where}.capacity.requests"
    amounts = (asked.get("capacity") or {}).get("requests") or {}
    for name, amount in amounts.items():
        if fault := _amount(name, amount):
            yield Remark(f"{path}.{name}: {fault}")
    if asked.get("adminAccess") and len(amounts) < len(CAPACITIES):
        yield Remark(
            f"{where}: admin access without capacity is only given to GPUs that nobody uses: "
            f"write {path}: {{cores: 1, memory: 256Mi}}, which takes nothing",
            fatal=False,
        )
    elif len(amounts) == 1 and not amounts.keys() - CAPACITIES:
        (missing,) = (name for name in CAPACITIES if name not in amounts)
        yield Remark(f"{path}.{missing} is not said and means all of the GPU's", fatal=False)
    if policy.unschedulable is not Unschedulable.IGNORE:
        fatal = policy.unschedulable is Unschedulable.DENY
        yield from (
            Remark(f"{where}.{text}", fatal) for text in _unschedulable(asked, amounts, nodes)
        )


def _unschedulable(
    asked: Mapping[str, Any], amounts: Mapping[str, Any], nodes: Collection[NodeKind]
) -> Iterator[str]:
    """Yield what no known node has: a claim's GPUs are those of one node."""
    largest = max((node.blocks[0] for node in nodes if node.blocks), default=0) * MEMORY_BLOCK
    memory, count = exact(amounts.get(CAPACITY_MEMORY, "0")) or 0, asked.get("count")
    if 0 < largest < memory:
        text = f"{amounts[CAPACITY_MEMORY]}; no node has a GPU with that, the largest has"
        yield f"capacity.requests.memory: {text} {format_bytes(largest)}"
    most = max((len(node.blocks) for node in nodes), default=0)
    if isinstance(count, int) and 0 < most < count:
        yield f"count: {count}; the largest node has {most}"


def _amount(name: str, written: Any) -> str:
    """Return why no GPU has it; empty where one may."""
    if name not in CAPACITIES:
        near = difflib.get_close_matches(name[:40], CAPACITIES, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {' and '.join(CAPACITIES)}"
        return f"no GPU has such a capacity; {meant}"
    amount = exact(written)
    if amount is None or amount < 0:
        return f"{str(written)[:40]!r} is not an amount"
    if name == CAPACITY_CORES and amount > CORES_PER_GPU:
        return (
            f"{written} is more than a GPU has, {CORES_PER_GPU}: for several GPUs write count, and "
            "cores of each"
        )
    return ""
