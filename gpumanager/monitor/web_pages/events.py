"""What happened on this node lately, found by comparing one look with the next. `news` is pure.

Few are kept, the newest; what happens to the same subject again within a minute is counted.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.monitor.admissions import AdmissionKind, Happened
from gpumanager.monitor.snapshot import ContainerSnapshot, GpuSnapshot, Snapshot, labels_of
from gpumanager.units import format_bytes

KEPT_EVENTS: Final = 100
MESSAGE_LETTERS: Final = 400
"""Characters of a message."""
TOGETHER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Event:
    """time: seconds since the epoch, when it happened last. count: how often.

    kind: one of KINDS. subject: a container as namespace/pod/container, of a claim that several
    pods share with the number of the others, a GPU, or the node.
    """

    kind: str
    subject: str
    message: str
    warning: bool = False
    count: int = 1
    time: float = 0.0

    @property
    def says(self) -> tuple[str, str, str]:
        return self.kind, self.subject, self.message

    def as_json(self) -> dict[str, Any]:
        return {
            "time": round(self.time, 3),
            "kind": self.kind,
            "warning": self.warning,
            "subject": self.subject,
            "message": self.message,
            "count": self.count,
        }


KINDS: Final[Mapping[str, str]] = {
    "container-came": "a container was placed on its GPUs",
    "container-gone": "a container released its GPUs",
    "memory-refused": "allocations were refused at a container's memory limit",
    "admission-refused": "a device plugin refused a container, and its pod fails",
    "claim-refused": "a claim was not prepared: its pod stays pending, and the kubelet retries",
    "behind-the-shim": "a process has GPU memory that no limit covers",
    "gpu-unhealthy": "a GPU became unhealthy",
    "gpu-healthy": "it is healthy again",
    "xid": "the driver reported an Xid",
    "driver-silent": "NVML does not respond",
    "driver-answers": "it responds again",
}


class Events:
    """The newest, in the order of their time."""

    def __init__(self, kept: int = KEPT_EVENTS) -> None:
        self._kept: deque[Event] = deque(maxlen=kept)

    def add(self, event: Event, now: float) -> None:
        """Add an event, which happened now: seconds since the epoch."""
        said = replace(event, time=now, message=event.message[:MESSAGE_LETTERS])
        recent = takewhile(lambda one: now - one.time <= TOGETHER_SECONDS, self.newest())
        before = next((one for one in recent if one.says == said.says), None)
        if before is not None:
            self._kept.remove(before)
            said = replace(said, count=before.count + said.count)
        self._kept.append(said)

    def newest(self) -> Iterator[Event]:
        """Return the newest first."""
        return reversed(self._kept)


def news(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    """Yield what happened between two looks."""
    if before.answered and not after.answered:
        told = "NVML does not respond: limits hold, the driver's figures are missing"
        yield Event("driver-silent", after.node, told, warning=True)
    if after.answered and not before.answered:
        yield Event("driver-answers", after.node, "NVML responds again")
    yield from _of_gpus(before, after)
    old, new = _by_grant(before), _by_grant(after)
    for key, view in old.items():
        if key not in new:
            yield Event("container-gone", named(view), f"released {_gpus(view)}")
    for key, view in new.items():
        known = old.get(key)
        if known is None:
            told = f"placed on {_gpus(view)} ({view.grant.why})"
            yield Event("container-came", named(view), told)
            continue
        refused = {device.gpu.uuid: device.refused for device in known.devices}
        for device in view.devices:
            more = device.refused - refused.get(device.gpu.uuid, 0)
            if more > 0:
                limit, gpu = format_bytes(device.limit), device.gpu.index
                told = f"allocation refused on GPU {gpu} at its memory limit of {limit}"
                yield Event("memory-refused", named(view), told, warning=True, count=more)


def refusal(one: Happened, node: str) -> Event | None:
    """Return the event of a container or a claim that got no GPU; None where a retry follows."""
    who = one.who
    subject = "/".join(labels_of(who)) if who else node
    if one.claim:
        told = f"claim {one.claim} not prepared: {one.text}"
        return Event("claim-refused", subject, told, warning=True)
    if one.kind is AdmissionKind.REFUSED:
        return Event("admission-refused", subject, f"refused: {one.text}", warning=True)
    return None


def _of_gpus(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    known: Mapping[GpuUUID, GpuSnapshot] = {view.gpu.uuid: view for view in before.gpus}
    for view in after.gpus:
        old = known.get(view.gpu.uuid)
        if old is None:
            continue
        name = f"GPU {view.gpu.index}"
        for code, count in view.fitness.xids.items():
            more = count - old.fitness.xids.get(code, 0)
            if more > 0:
                yield Event("xid", name, f"Xid {code}", warning=True, count=more)
        if old.fitness.healthy and not view.fitness.healthy:
            yield Event(
                "gpu-unhealthy", name, "out of use: nothing new is placed on it", warning=True
            )
        if view.fitness.healthy and not old.fitness.healthy:
            yield Event("gpu-healthy", name, "healthy: containers may get it again")


def _by_grant(snapshot: Snapshot) -> dict[AllocationID, ContainerSnapshot]:
    return {view.grant.id: view for view in snapshot.containers}


def named(view: ContainerSnapshot) -> str:
    others = len({one.uid for one in view.users} - {view.owner.uid})
    return "/".join(view.labels) + (f" +{others}" if others else "")


def _gpus(view: ContainerSnapshot) -> str:
    return "GPU " + ", ".join(str(device.gpu.index) for device in view.devices)
