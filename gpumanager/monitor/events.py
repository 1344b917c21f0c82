"""What happened on this node lately: at admissions, and between one snapshot and the next.

The newest are kept. What happens again is counted with the earlier time, so that one pod's retries
do not push out what happened to others.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Claimant
from gpumanager.ids import AllocationID
from gpumanager.monitor.snapshot import ContainerSnapshot, GpuSnapshot, Snapshot, labels_of
from gpumanager.units import format_bytes

KEPT_EVENTS: Final = 200
MESSAGE_LETTERS: Final = 500
"""Characters of a message."""


@dataclass(frozen=True, slots=True)
class Event:
    """time: seconds since the epoch, when it happened last. count: how often.

    kind: as `view/node.schema.json` lists them. subject: a container as namespace/pod/container, of
    a claim that several pods share with the number of the others, a GPU; empty for the node.
    claim: namespace/name of the claim that it is about.
    """

    kind: str
    subject: str
    message: str
    warning: bool = False
    count: int = 1
    time: float = 0.0
    claim: str = ""

    @property
    def same(self) -> tuple[str, str, str, str]:
        """What is equal where it happens again."""
        return self.kind, self.subject, self.message, self.claim

    def as_json(self, node: str) -> dict[str, Any]:
        return {
            "time": round(self.time, 3),
            "kind": self.kind,
            "warning": self.warning,
            "subject": self.subject or node,
            "claim": self.claim or None,
            "message": self.message,
            "count": self.count,
        }


class Events:
    """The newest, in the order of their time."""

    def __init__(self, kept: int = KEPT_EVENTS, clock: Callable[[], float] = time.time) -> None:
        self._kept: deque[Event] = deque(maxlen=kept)
        self._clock = clock
        self.added = 0
        self.swaps = 0
        """Containers that were confirmed on another pod's admission: a swap, put right."""

    def add(self, event: Event) -> None:
        """Add an event, which happened now."""
        said = replace(event, time=self._clock(), message=event.message[:MESSAGE_LETTERS])
        before = next((one for one in self._kept if one.same == said.same), None)
        if before is not None:
            self._kept.remove(before)
            said = replace(said, count=before.count + said.count)
        self._kept.append(said)
        self.added += 1

    def newest(self) -> Iterator[Event]:
        """Return the newest first."""
        return reversed(self._kept)

    def refused(self, pod: Claimant | None, text: str) -> None:
        """Add that a pod failed."""
        self.add(Event("admission-refused", _subject(pod), f"refused: {text}", warning=True))

    def postponed(self, pod: Claimant | None, text: str) -> None:
        """Add that the start of a container failed, and that the kubelet tries again."""
        self.add(Event("start-put-off", _subject(pod), f"start put off: {text}"))

    def swapped(self, pod: Claimant, expected: Claimant) -> None:
        """Add that a container started with a grant that was made for another pod."""
        self.swaps += 1
        told = f"started on what had been granted for another pod: {expected}"
        self.add(Event("pod-swapped", _subject(pod), told))

    def claim_refused(self, pod: Claimant | None, claim: str, text: str) -> None:
        """Add that a claim, namespace/name, was not prepared."""
        told = f"claim {claim} not prepared: {text}"
        self.add(Event("claim-refused", _subject(pod), told, warning=True, claim=claim))


def _subject(pod: Claimant | None) -> str:
    return "/".join(labels_of(pod)) if pod else ""


def news(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    """Yield what happened between two snapshots."""
    if before.answered and not after.answered:
        told = "NVML does not respond: limits hold, the driver's figures are missing"
        yield Event("driver-silent", "", told, warning=True)
    if after.answered and not before.answered:
        yield Event("driver-answers", "", "NVML responds again")
    yield from _of_gpus(before, after)
    if before.containers is after.containers:
        return
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
            told = "out of use: nothing new is placed on it"
            yield Event("gpu-unhealthy", name, told, warning=True)
        if view.fitness.healthy and not old.fitness.healthy:
            yield Event("gpu-healthy", name, "healthy: containers may get it again")


def _by_grant(snapshot: Snapshot) -> dict[AllocationID, ContainerSnapshot]:
    return {view.grant.id: view for view in snapshot.containers}


def named(view: ContainerSnapshot) -> str:
    others = len({one.uid for one in view.users} - {view.owner.uid})
    return "/".join(view.labels) + (f" +{others}" if others else "")


def _gpus(view: ContainerSnapshot) -> str:
    return "GPU " + ", ".join(str(device.gpu.index) for device in view.devices)
