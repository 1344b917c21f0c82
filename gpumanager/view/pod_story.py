"""What the API server says of a pod that asks for GPUs, in sentences. Pure.

pod and events: objects of the Kubernetes API, as JSON has them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_ROOM_FOUND,
    VCORE,
    VMEMORY,
)
from gpumanager.view.metrics import printable

Object = Mapping[str, Any]
MOST_EVENTS: Final = 12


def pod_story(pod: Object, events: Sequence[Object]) -> tuple[str, ...]:
    return tuple(printable(line) for line in (*_asked(pod), *_where(pod), *_events(events)))


def _asked(pod: Object) -> Iterator[str]:
    for one in _list(pod, "spec", "containers"):
        limits = _at(one, "resources", "limits") or {}
        cores, blocks = limits.get(VCORE), limits.get(VMEMORY)
        if cores or blocks:
            yield f"Container {one.get('name')} asks for {VCORE} {cores}, {VMEMORY} {blocks or 0}."


def _where(pod: Object) -> Iterator[str]:
    node, phase = _at(pod, "spec", "nodeName"), _at(pod, "status", "phase") or "unknown"
    yield f"Its phase is {phase}" + (f", on node {node}." if node else ", on no node yet.")
    for one in _list(pod, "status", "conditions"):
        if one.get("status") == "False" and one.get("message"):
            yield f"{one.get('type')} is not so: {one['message']}"
    if message := _at(pod, "status", "message"):
        yield f"{_at(pod, 'status', 'reason') or 'It says'}: {message}"
    yield from _annotations(_at(pod, "metadata", "annotations") or {})


def _annotations(said: Mapping[str, str]) -> Iterator[str]:
    if planned := said.get(ANNOTATION_PREDICATE_NODE):
        yield f"The scheduler planned it for node {planned}."
    assigned = said.get(ANNOTATION_GPU_ASSIGNED) == "true"
    for key in sorted(key for key in said if key.startswith(ANNOTATION_PREDICATE_GPU_INDEX)):
        place = key.removeprefix(ANNOTATION_PREDICATE_GPU_INDEX)
        verb = "has" if assigned else "was planned for"
        yield f"Container number {place} {verb} GPU {said[key]} (of /dev/nvidia)."
    if room := said.get(ANNOTATION_ROOM_FOUND):
        yield f"Room was found for it at {room}; kube-scheduler was asked to look again."


def _events(events: Sequence[Object]) -> Iterator[str]:
    """Yield the newest last."""
    told = [one for one in events if one.get("message")]
    for one in sorted(told, key=_time)[-MOST_EVENTS:]:
        count = int(one.get("count") or 1)
        often = "" if count == 1 else f", {count} times"
        yield f"{_time(one)} {one.get('reason')}{often}: {one['message']}"


def _time(event: Object) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return str(next(filter(None, times), ""))


def _at(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _list(found: Any, *names: str) -> list[Object]:
    return [one for one in _at(found, *names) or () if isinstance(one, Mapping)]
