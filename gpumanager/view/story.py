"""What happened to a pod on its node, in sentences. Pure.

From what the agent granted, what it remembers of admissions, and what its containers use now.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from gpumanager.view.node import (
    ContainerRow,
    DeviceRow,
    EventRow,
    NodeView,
    granted,
    of_users,
    printable,
    short_model,
)

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
    lines: list[str] = []
    for one in (one for one in node.containers if one.is_for(pod)):
        lines += _claimed(one, pod, node) if one.claim else _granted(one, node)
    for event in reversed(node.events):
        lines += _happening(event) if event.subject.startswith(f"{pod}/") else ()
    for gpu, (one, device) in node.shares:
        lines += _container(one, device, gpu.index) if one.is_for(pod) else ()
    return tuple(lines)


def claim_story(claim: str, node: NodeView) -> tuple[str, ...]:
    """Describe a ResourceClaim in the same way, namespace/name."""
    lines: list[str] = []
    grants = [one for one in node.containers if one.claim_name == claim]
    for one in grants:
        users = of_users(one.containers) if one.users else "a pod that is not known"
        indices = [device.index for device in one.devices]
        admin = f"admin access to {_gpus(indices, node)}"
        lines.append(
            f"Request {', '.join(one.requests)} is prepared on node {node.node} since "
            f"{when(one.admitted)}: "
            f"{admin if one.state == 'admin' else _amounts(one, node)}, for {users}."
        )
    for event in reversed(node.events):
        lines += _happening(event) if event.claim == claim else ()
    for gpu, (one, device) in node.shares:
        lines += _container(one, device, gpu.index) if one in grants else ()
    return tuple(lines)


def _claimed(one: ContainerRow, pod: str, node: NodeView) -> Iterator[str]:
    """Describe a pod that has its GPUs by a claim, alone or together with others."""
    _, _, name = pod.partition("/")
    mine = [container for user, container in one.containers if user == name]
    who = f"Container {mine[0]}" if len(mine) == 1 else f"Containers {' and '.join(mine)}"
    by, since = f"claim {one.from_claim}", when(one.admitted)
    if one.state == "admin":
        gpus = _gpus([device.index for device in one.devices], node)
        yield f"{who} can look at {gpus} by {by}, since {since}."
        yield "That is admin access: it holds nothing of them, and nothing limits it."
        return
    verb = "has" if len(mine) == 1 else "have together"
    yield f"{who} {verb} {_amounts(one, node)} since {since}, by {by}."
    if others := [user for user in one.containers if user[0] != name]:
        yield f"The same limits hold for {of_users(others)} too, for all of them together."
    yield f"kube-scheduler chose the GPU{'s' if len(one.devices) > 1 else ''}."


def _amounts(one: ContainerRow, node: NodeView) -> str:
    """Return `30 % and 2 GiB of GPU 2 (T4), the whole GPU of GPU 3 (T4)`, equal ones together."""
    alike: dict[str, list[int | None]] = {}
    for device in one.devices:
        alike.setdefault("all" if device.whole else granted(one, device), []).append(device.index)
    return ", ".join(f"{much} of {_gpus(indices, node)}" for much, indices in alike.items())


def _granted(one: ContainerRow, node: NodeView) -> Iterator[str]:
    gpus = _gpus([device.index for device in one.devices], node)
    chosen = f"Chosen for {EVALUATORS[one.evaluator]}" if one.evaluator in EVALUATORS else "Chosen"
    started = one.state != "allocated"
    much = "0 %"
    if one.devices:
        whole = all(device.whole for device in one.devices)
        much = "all" if whole else granted(one, one.devices[0])
    verb = "has" if started else "was granted"
    yield f"Container {one.container} {verb} {much} of {gpus} since {when(one.admitted)}."
    yield f"{chosen}: {one.why or 'no reason was written down'}."
    if not started:
        yield "It has not started yet: its pod is confirmed just before its container starts."
    if one.expected_pod:
        yield (
            f"It had been granted while {one.expected_pod} was thought to be admitted; this pod "
            "came first, got limits of its own, and its annotations say what it has."
        )
    if one.suspect:
        yield "The kubelet has given its devices to another pod since: this one has ended."
    if one.legacy:
        yield "gpu-manager granted it before this agent was installed; it keeps what it has."


def _gpus(indices: Iterable[int | None], node: NodeView) -> str:
    there = sorted(index for index in indices if index is not None)
    if not there:
        return "a GPU that is missing now"
    models = {gpu.index: short_model(gpu.model) for gpu in node.gpus}
    word = "GPU" if len(there) == 1 else "GPUs"
    return f"{word} {', '.join(map(str, there))} ({models.get(there[0], 'unknown model')})"


HAPPENINGS: Final = {
    "claim-refused": "Claim {claim} was not prepared{often} at {at}: {text}.",
    "admission-refused": "Container {container} was refused{often} at {at}: {text}.\n"
    "That is final for the pod: its owner has to create it again.",
    "start-put-off": "The start of container {container} was put off{often} at {at}: {text}. The "
    "kubelet tries again.",
    "pod-swapped": "At {at} container {container} started on what had been granted for {text}: it "
    "was given its own limits.",
}
"""Sentences about what went otherwise than planned at an admission."""


def _happening(event: EventRow) -> list[str]:
    return (
        HAPPENINGS.get(event.kind, "")
        .format(
            claim=(event.claim or "").partition("/")[2],
            container=event.subject.split("/")[-1].partition(" ")[0],
            often="" if event.count == 1 else f", {event.count} times, lately",
            at=when(event.time),
            text=event.message.partition(": ")[2],
        )
        .splitlines()
    )


def _container(one: ContainerRow, device: DeviceRow, index: int) -> Iterator[str]:
    shared = one.claim and len(one.containers) > 1
    where = f"{f'Claim {one.claim}' if shared else f'Container {one.container}'} on GPU {index}"
    if device.memory_used_bytes is None:
        yield f"{where} has it whole: nothing is limited there, and nothing refused."
        return
    yield from unlimited_sentences(one.unlimited_processes)
    limit = device.memory_limit_bytes or 0
    used = f"{format_bytes(device.memory_used_bytes)} of {format_bytes(limit)}"
    yield f"{where} uses {used} now."
    if one.unlimited_processes and device.memory_measured_bytes is not None:
        measured = format_bytes(device.memory_measured_bytes)
        yield f"By the driver, its processes hold {measured}."
    most = format_bytes(device.memory_peak_bytes or 0)
    if refusals := device.memory_refusals:
        times = "once" if refusals == 1 else f"{refusals:,.0f} times"
        yield (
            f"It was refused memory {times}, because that would have gone over its limit; the most "
            f"it ever used is {most}. Let it use less, or ask for more than "
            f"{round(limit / MEMORY_BLOCK)} {VMEMORY} (blocks of 256 MiB)."
        )
    else:
        yield f"No request for memory was refused; the most it ever used is {most}."
    percent = device.share_granted_percent or 0
    burst = f", up to {device.share_ceiling_percent} %" if device.burst else ""
    taken = f"{device.share_percent or 0:.1f} %"
    yield f"It takes {taken} of the GPU's time; granted: {percent} %{burst}."
    if not device.launches_throttled:
        yield "None of its launches ever had to wait."
        return
    advice = ""
    if not burst and percent < CORES_PER_GPU:
        name = "parameter coreLimit" if one.claim else f"annotation {ANNOTATION_CORE_LIMIT}"
        advice = f" The {name} lets it take what others leave."
    yield (
        f"{device.launches_throttled:,.0f} of its {device.launches or 0:,.0f} launches had to "
        f"wait, {seconds(device.throttled_seconds)} in all, because it wants more than "
        f"that.{advice}"
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
