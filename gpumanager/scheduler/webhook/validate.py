"""Validates a pod with GPUs, with messages for its author. Pure.

An error is a pod that could never run, or not as intended; a warning is something without effect.
One verdict has all errors.
"""

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from gpumanager import names
from gpumanager.kube.pod import pod_amount
from gpumanager.kube.quantity import whole_number
from gpumanager.names import (
    ANNOTATION_CORE_LIMIT,
    ANNOTATION_GPU_POLICY,
    ANNOTATION_PLAN,
    ANNOTATION_POLICY,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATIONS_OURS,
    CLAIM_DRIVER,
    VCORE,
    VMEMORY,
    WHOLE_GPU,
)
from gpumanager.placement.preference import read_gpu_policy, read_preference
from gpumanager.placement.values import Reason, Request, check
from gpumanager.scheduler.webhook.asks import (
    RESOURCES,
    Amount,
    ContainerAmounts,
    annotations,
    read_asks,
)
from gpumanager.scheduler.webhook.nodes import NodeKind, unschedulable
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, Unschedulable
from gpumanager.scheduler.webhook.review import Decision, Remark
from gpumanager.units import CORES_PER_GPU, bytes_for_blocks

READERS: Final[Mapping[str, Callable[[str], object]]] = {
    ANNOTATION_POLICY: read_preference,
    ANNOTATION_GPU_POLICY: read_gpu_policy,
}
"""Annotations of a pod that have a grammar: the scheduler reads them so. They raise ValueError."""

KNOWN_ANNOTATIONS: Final = tuple(
    text for name, text in vars(names).items() if name.startswith("ANNOTATION_")
)
"""All annotations that any of our components reads or writes."""

NAMED_UNKNOWN_ANNOTATIONS: Final = 5
LONGEST_KEY: Final = 100
"""Comparing words takes long, and a pod may have thousands of annotations."""


def validate(
    pod: Any,
    policy: AdmissionPolicy,
    nodes: Collection[NodeKind] = (),
    exceeds: Callable[[int], str] = lambda _: "",
) -> Decision:
    """Return errors and warnings; none for a pod that asks for no GPU.

    exceeds: why so many cores exceed the quota of the namespace by themselves; empty where they do
    not. It leads to a warning, because quotas change more easily than nodes do.
    """
    asks = read_asks(pod)
    if not asks:
        return Decision()
    remarks = [remark for ask in asks for remark in _container(ask)]
    remarks += _annotations(annotations(pod), asks)
    if policy.unschedulable is not Unschedulable.IGNORE:
        fatal = policy.unschedulable is Unschedulable.DENY
        remarks += [Remark(text, fatal) for text in unschedulable(asks, nodes)]
    if text := exceeds(pod_amount((ask.kind, ask.request.cores) for ask in asks if ask.request)):
        remarks.append(Remark(text, fatal=False))
    return Decision.by(remarks)


def _container(ask: ContainerAmounts) -> Iterator[Remark]:
    for name in RESOURCES:
        for fault in _amount(name, ask.amounts[name]):
            yield Remark(f"{ask.where}: {fault}")
    if ask.request is not None and (fault := _request(ask.request)):
        yield Remark(f"{ask.where}: {fault}")
    # A container has one directory of limits: a claim's would hide that of the share.
    if ask.whole.number != 0:
        yield Remark(
            f"{ask.where}: {VCORE} and {WHOLE_GPU} in one container: each brings limits of its "
            "own, and one hides the other. Ask for all GPUs of a container by one claim"
        )
    elif ask.claims:
        names = ", ".join(ask.claims)
        yield Remark(
            f"{ask.where}: {VCORE} beside claims ({names}): where one of them is for GPUs of "
            f"{CLAIM_DRIVER}, the node refuses to start the pod. Ask for all GPUs of a container "
            "by one claim",
            fatal=False,
        )


def _amount(name: str, amount: Amount) -> Iterator[str]:
    """Check what Kubernetes checks of every extended resource, in plainer words."""
    if amount.written is None:
        return
    if amount.number is None or amount.number < 0:
        yield f"{name}: {amount.written!r} is not a whole number of at least 0"
        return
    if name == VMEMORY and (meant := bytes_for_blocks(amount.number)):
        yield f"{name}: {amount.written} asks for {amount.number} blocks; {meant}"
    if amount.limit is None:
        yield f"{name} is only requested: write it under resources.limits"
    elif amount.request is not None and whole_number(amount.request) != amount.number:
        yield (
            f"{name}: the request, {amount.request}, is not the limit, {amount.limit}: leave the "
            f"request out (to use more than is granted, annotate {ANNOTATION_CORE_LIMIT})"
        )


def _request(request: Request) -> str:
    """Return why no machine could grant it; empty where one could. The node has the same rules."""
    if not request.cores:
        return f"{VMEMORY} without {VCORE}: say how much of a GPU's compute it may use, 1 to 99"
    refusal = check(request)
    if refusal is None:
        return ""
    if refusal.reason is Reason.NO_MEMORY_ASKED:
        return (
            f"{VCORE}: {request.cores} is a share of a GPU and needs {VMEMORY}: "
            "write how many blocks of 256 MiB it may use"
        )
    below = request.cores // CORES_PER_GPU * CORES_PER_GPU
    return (
        f"{VCORE}: {request.cores} is neither a share of one GPU (1 to 99) nor a number of whole "
        f"GPUs (100 for each): write {below} or {below + CORES_PER_GPU}"
    )


def _annotations(found: Mapping[str, Any], asks: Collection[ContainerAmounts]) -> Iterator[Remark]:
    if ANNOTATION_CORE_LIMIT in found:
        yield from _core_limit(str(found[ANNOTATION_CORE_LIMIT]).strip(), asks)
    for key, read in READERS.items():
        try:
            if key in found:
                read(str(found[key]))
        except ValueError as error:
            yield Remark(f"annotation {key}: {error}")
    if ANNOTATION_PLAN in found and (fault := _plan(found[ANNOTATION_PLAN])):
        yield Remark(f"annotation {ANNOTATION_PLAN} is ignored: {fault}", fatal=False)
    unknown = (
        key
        for key in found
        if key.startswith(ANNOTATIONS_OURS)
        and key not in KNOWN_ANNOTATIONS
        and not key.startswith(ANNOTATION_PREDICATE_GPU_INDEX)
    )
    for key in islice(unknown, NAMED_UNKNOWN_ANNOTATIONS):
        near = difflib.get_close_matches(
            key[:LONGEST_KEY], (*KNOWN_ANNOTATIONS, *RESOURCES), 1, 0.8
        )
        hint = f"; did you mean {near[0]}?" if near else ""
        yield Remark(f"annotation {key[:LONGEST_KEY]} is unknown{hint}", fatal=False)


def _core_limit(text: str, asks: Collection[ContainerAmounts]) -> Iterator[Remark]:
    """Check it as the node reads it: `grants.plan.ceiling`."""
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004
    shares = [ask for ask in asks if ask.request and ask.request.cores < CORES_PER_GPU]
    if not limit:
        yield Remark(f"annotation {ANNOTATION_CORE_LIMIT}: {text[:40]!r} is not 1 to 100 percent")
        return
    if limit > CORES_PER_GPU:
        yield Remark(f"annotation {ANNOTATION_CORE_LIMIT}: {limit} counts as 100", fatal=False)
    if not shares:
        yield Remark(f"{ANNOTATION_CORE_LIMIT} has no effect on whole GPUs", fatal=False)
    for ask in shares:
        if ask.request and ask.request.cores > limit:
            yield Remark(
                f"{ask.where} is granted {ask.request.cores} percent of a GPU, so annotation "
                f"{ANNOTATION_CORE_LIMIT}: {limit} has no effect: write more than the grant"
            )


def _plan(text: Any) -> str:
    """Return why the node would ignore it: `gpumanager.kube.plan`; empty where it would not."""
    try:
        plan = json.loads(text)
        return "" if plan["version"] == 1 and isinstance(plan["containers"], dict) else "no plan"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
