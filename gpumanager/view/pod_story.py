"""What the API server says of a pod that asks for GPUs, in sentences. Pure.

pod and events: objects of the Kubernetes API, as JSON has them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_ROOM_FOUND,
    VCORE,
    VMEMORY,
)
from gpumanager.view.node import printable

Object = Mapping[str, Any]
MOST_EVENTS: Final = 12


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
