"""What happened to a pod on its node, in sentences. Pure.

From what the agent granted, what it remembers of admissions, and what its containers use now.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from gpumanager.names import (
    ANNOTATION_CORE_LIMIT,
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_ROOM_FOUND,
    VCORE,
    VMEMORY,
)
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes
from gpumanager.view.figures import seconds
from gpumanager.view.node import ContainerRow, NodeView, PastEvent, PlacedGrant, of_users, printable
from gpumanager.view.topology_tree import granted, short_model

Object = Mapping[str, Any]
MOST_EVENTS: Final = 12
EVALUATORS = {
    "share": "a share of one GPU",
    "fragment": "one whole GPU",
    "link": "several whole GPUs",
}
LACKS = {
    "session": "found another driver library than the one with the shim",
    "entry": "got functions from the driver that the shim does not know",
}


def story(pod: str, node: NodeView) -> tuple[str, ...]:
    """Describe a pod, namespace/name; nothing where the agent does not have it."""
    rows = [
        (index, row)
        for index, row in _rows(node)
        if pod
        in {f"{row.namespace}/{name}" for name in (row.pod, *(name for name, _ in row.users))}
    ]
    lines: list[str] = []
    for one in (one for one in node.grants if one.is_for(pod)):
        lines += _claimed(one, pod, node) if one.claim else _grant(one, node)
    for event in reversed(node.events):
        lines += _happening(event) if event.is_for(pod) else ()
    for index, row in rows:
        lines += _container(row, index)
    return tuple(lines)


def claim_story(claim: str, node: NodeView) -> tuple[str, ...]:
    """Describe a ResourceClaim in the same way, namespace/name."""
    namespace, _, name = claim.partition("/")
    lines = []
    for one in (one for one in node.grants if one.claim == claim):
        users = of_users(one.users) or "a pod that is not known"
        what = f"admin access to {_gpus(one, node)}" if one.admin else _amounts(one, node)
        lines.append(
            f"Request {', '.join(one.requests)} is prepared on node {node.name} since "
            f"{when(one.time)}: {what}, for {users}."
        )
    for event in reversed(node.events):
        lines += _happening(event) if event.claim == claim else ()
    for index, row in _rows(node):
        if row.claim and (row.namespace, row.claim[0]) == (namespace, name):
            lines += _container(row, index)
    return tuple(lines)


def _rows(node: NodeView) -> Iterator[tuple[int, ContainerRow]]:
    return ((gpu.index, row) for gpu in node.gpus for row in gpu.containers)


def _claimed(one: PlacedGrant, pod: str, node: NodeView) -> Iterator[str]:
    """Describe a pod that has its GPUs by a claim, alone or together with others."""
    _, _, name = pod.partition("/")
    mine = [container for user, container in one.users if user == name] or [one.container]
    who = f"Container {mine[0]}" if len(mine) == 1 else f"Containers {' and '.join(mine)}"
    by = f"claim {one.claim.partition('/')[2]} (request {', '.join(one.requests)})"
    if one.admin:
        yield f"{who} can look at {_gpus(one, node)} by {by}, since {when(one.time)}."
        yield "That is admin access: it holds nothing of them, and nothing limits it."
        return
    verb = "has" if len(mine) == 1 else "have together"
    yield f"{who} {verb} {_amounts(one, node)} since {when(one.time)}, by {by}."
    if others := [user for user in one.users if user[0] != name]:
        yield f"The same limits hold for {of_users(others)} too, for all of them together."
    yield f"kube-scheduler chose the GPU{'s' if len(one.shares) > 1 else ''}."


def _amounts(one: PlacedGrant, node: NodeView) -> str:
    """Return `30 % and 2 GiB of GPU 2 (T4), the whole GPU of GPU 3 (T4)`, equal ones together."""
    index = {str(gpu.uuid): gpu.index for gpu in node.topology.gpus}
    alike: dict[str, list[int]] = {}
    for uuid in one.shares:
        much = "all" if uuid in one.whole else granted(one, uuid)
        alike.setdefault(much, []).extend([index[uuid]] if uuid in index else [])
    return ", ".join(
        f"{much} of " + _gpus(replace(one, gpus=tuple(sorted(gpus))), node)
        for much, gpus in alike.items()
    )


def _grant(one: PlacedGrant, node: NodeView) -> Iterator[str]:
    gpus = _gpus(one, node)
    chosen = f"Chosen for {EVALUATORS[one.evaluator]}" if one.evaluator in EVALUATORS else "Chosen"
    verb = "has" if one.confirmed else "was granted"
    much = "all" if one.shares and one.whole == one.shares.keys() else granted(one)
    yield f"Container {one.container} {verb} {much} of {gpus} since {when(one.time)}."
    yield f"{chosen}: {one.why or 'no reason was written down'}."
    if not one.confirmed:
        yield "It has not started yet: its pod is confirmed just before its container starts."
    if one.expected:
        yield (
            f"It had been granted while {one.expected} was thought to be admitted; this pod came "
            "first, got limits of its own, and its annotations say what it has."
        )
    if one.suspect:
        yield "The kubelet has given its devices to another pod since: this one has ended."
    if one.legacy:
        yield "gpu-manager granted it before this agent was installed; it keeps what it has."


def _gpus(one: PlacedGrant, node: NodeView) -> str:
    if not one.gpus:
        return "a GPU that is missing now"
    models = {gpu.index: short_model(gpu.model) for gpu in node.topology.gpus}
    word = "GPU" if len(one.gpus) == 1 else "GPUs"
    return f"{word} {', '.join(map(str, one.gpus))} ({models.get(one.gpus[0], 'unknown model')})"


def _happening(event: PastEvent) -> Iterator[str]:
    """Describe what went otherwise than planned at an admission; of other events, nothing."""
    often = "" if event.count == 1 else f", {event.count} times, lately"
    container = event.subject.split("/")[-1].partition(" ")[0]
    at, text = when(event.time), event.message.partition(": ")[2]
    match event.kind:
        case "claim-refused":
            claim = event.claim.partition("/")[2]
            yield f"Claim {claim} was not prepared{often} at {at}: {text}."
        case "admission-refused":
            yield f"Container {container} was refused{often} at {at}: {text}."
            yield "That is final for the pod: its owner has to create it again."
        case "start-put-off":
            yield (
                f"The start of container {container} was put off{often} at {at}: {text}. The "
                "kubelet tries again."
            )
        case "pod-swapped":
            yield (
                f"At {at} container {container} started on what had been granted for {text}: it "
                "was given its own limits."
            )


def _container(row: ContainerRow, index: int) -> Iterator[str]:
    who = f"Claim {row.claim[0]}" if row.claim and len(row.users) > 1 else None
    where = f"{who or f'Container {row.container}'} on GPU {index}"
    if row.used is None:
        yield f"{where} has it whole: nothing is limited there, and nothing refused."
        return
    yield from unlimited_sentences(row.unlimited)
    yield f"{where} uses {format_bytes(row.used)} of {format_bytes(row.limit)} now."
    if row.unlimited and row.measured is not None:
        yield f"By the driver, its processes hold {format_bytes(row.measured)}."
    most = format_bytes(row.peak or 0)
    if row.refusals:
        blocks = round(row.limit / MEMORY_BLOCK)
        times = "once" if row.refusals == 1 else f"{row.refusals:,.0f} times"
        yield (
            f"It was refused memory {times}, because that would have gone over its limit; the most "
            f"it ever used is {most}. Let it use less, or ask for more than {blocks} {VMEMORY} "
            "(blocks of 256 MiB)."
        )
    else:
        yield f"No request for memory was refused; the most it ever used is {most}."
    granted_percent, ceiling = row.granted or 0, row.ceiling or 0
    burst = f", up to {ceiling} %" if ceiling > granted_percent else ""
    percent = f"{granted_percent} %{burst}"
    yield f"It takes {row.share or 0:.1f} % of the GPU's time; granted: {percent}."
    if not row.throttled_launches:
        yield "None of its launches ever had to wait."
        return
    advice = ""
    if not burst and granted_percent < CORES_PER_GPU:
        name = "parameter coreLimit" if row.claim else f"annotation {ANNOTATION_CORE_LIMIT}"
        advice = f" The {name} lets it take what others leave."
    yield (
        f"{row.throttled_launches:,.0f} of its {row.launches or 0:,.0f} launches had to wait, "
        f"{seconds(row.throttled_seconds)} in all, because it wants more than that.{advice}"
    )


def unlimited_sentences(unlimited: Mapping[str, int]) -> Iterator[str]:
    """Yield one for each thing that processes without a limit lack: the label `reason` of
    `gpumanager_container_unlimited_processes`."""
    for reason, count in sorted(unlimited.items()):
        processes = "1 process" if count == 1 else f"{count} processes"
        why = LACKS.get(reason, f"lacks what is called {reason}")
        each = "It" if count == 1 else "Each"
        yield (
            f"No limit holds for {processes}. {each} {why}. "
            f"What to do: runbook GpuManagerContainerUnlimited, {reason!r}."
        )


def when(at: float) -> str:
    """Write a time in the reader's time zone."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def pod_story(pod: Object, events: Sequence[Object]) -> tuple[str, ...]:
    """Return what it asks for, where it is, and its latest events."""
    lines = []
    for one in _list(pod, "spec", "containers"):
        limits = _at(one, "resources", "limits") or {}
        if limits.get(VCORE) or limits.get(VMEMORY):
            amounts = f"{VCORE} {limits.get(VCORE)}, {VMEMORY} {limits.get(VMEMORY) or 0}"
            lines.append(f"Container {one.get('name')} asks for {amounts}.")
    node, phase = _at(pod, "spec", "nodeName"), _at(pod, "status", "phase") or "unknown"
    lines.append(f"Its phase is {phase}" + (f", on node {node}." if node else ", on no node yet."))
    lines += [
        f"{one.get('type')} is not so: {one['message']}"
        for one in _list(pod, "status", "conditions")
        if one.get("status") == "False" and one.get("message")
    ]
    if message := _at(pod, "status", "message"):
        lines.append(f"{_at(pod, 'status', 'reason') or 'It says'}: {message}")
    annotations = _at(pod, "metadata", "annotations") or {}
    if planned := annotations.get(ANNOTATION_PREDICATE_NODE):
        lines.append(f"The scheduler planned it for node {planned}.")
    verb = "has" if annotations.get(ANNOTATION_GPU_ASSIGNED) == "true" else "was planned for"
    for key in sorted(annotations):
        if key.startswith(ANNOTATION_PREDICATE_GPU_INDEX):
            place = key.removeprefix(ANNOTATION_PREDICATE_GPU_INDEX)
            lines.append(
                f"Container number {place} {verb} GPU {annotations[key]} (of /dev/nvidia)."
            )
    if room := annotations.get(ANNOTATION_ROOM_FOUND):
        lines.append(f"Room was found for it at {room}; kube-scheduler was asked to look again.")
    for one in sorted((one for one in events if one.get("message")), key=_time)[-MOST_EVENTS:]:
        count = int(one.get("count") or 1)
        often = "" if count == 1 else f", {count} times"
        lines.append(f"{_time(one)} {one.get('reason')}{often}: {one['message']}")
    return tuple(map(printable, lines))


def _time(event: Object) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return str(next(filter(None, times), ""))


def _at(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _list(found: Any, *names: str) -> list[Object]:
    return [one for one in _at(found, *names) or () if isinstance(one, Mapping)]
