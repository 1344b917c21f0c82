"""Processes with GPU memory that no limit holds. Pure.

The shim stands between a program and the driver; a program that calls the driver itself bypasses
it. There are five kinds:

* unbooked: a process of a container that has a share of this GPU, and no session with the manager:
  it found a driver library without a shim, as an image may bring one;
* unlimited: a process with a shim that could not find the functions of its driver;
* over the limit: what the processes of a container hold together is more than it may;
* unknown process (label `stranger`): a process on a GPU that is granted to others;
* overdrawn: a process of a container that goes on launching out of turn.

What a process with a slot takes without the shim is measured and charged to it within a second, so
that it is a breach only beyond the limit. A sample may fall into a moment in which memory moves:
only what several samples in a row show counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Claimant, ClaimSource
from gpumanager.ids import PodUID
from gpumanager.limits.processes import Process
from gpumanager.monitor.snapshot import ContainerSnapshot, Resident, Snapshot, labels_of
from gpumanager.monitor.unlimited.residents import by_holder, same_pod
from gpumanager.runtime.cgroup import Membership
from gpumanager.units import MIB, Bytes, format_bytes

TOLERANCE: Final = Bytes(32 * MIB)
LOOKS_BEFORE_VERDICT: Final = 3


class UnlimitedKind(Enum):
    """What is wrong with a process."""

    UNBOOKED = "unbooked"
    UNLIMITED = "unlimited"
    OVER_LIMIT = "over-limit"
    STRANGER = "stranger"
    OVERDRAWN = "overdrawn"


@dataclass(frozen=True, slots=True)
class Suspect:
    """One process on one GPU. taken: bytes that no limit holds.

    owner: the container it is of, the first of those that share a claim. pod: its own pod, and
    pod_name: namespace and name of that, where it is not the owner's and somebody knows them. also:
    other pods that it may be of, because they share the claim and the kernel does not tell.
    certain: whether the kernel itself has named its container: by its cgroup, or when it asked for
    its limits and its cgroup is no other pod's. command: its program's name.
    """

    kind: UnlimitedKind
    process: Process
    gpu: Gpu
    taken: Bytes
    owner: Claimant | None = None
    pod: PodUID | None = None
    certain: bool = False
    pod_name: str | None = None
    command: str = ""
    also: tuple[PodUID, ...] = ()

    @property
    def labels(self) -> tuple[str, str, str]:
        """Of its container, as the metrics have them; without a container where none is known."""
        if self.owner:
            return labels_of(self.owner)
        namespace, _, name = (self.pod_name or "").partition("/")
        return namespace, name or self.pod or "", ""

    @property
    def key(self) -> "Key":
        return self.kind, self.process, self.gpu.uuid

    def __str__(self) -> str:
        pod = self.pod_name or self.pod
        who = f"pod {pod}" if pod else "no pod that is known"
        if self.owner and self.owner.uid == self.pod:
            who = f"{self.owner}{' or whoever shares its claim' if self.also else ''}"
        size = format_bytes(self.taken) if self.taken else "memory"
        says = _SAYS[self.kind].format(size=size, gpu=f"GPU{self.gpu.index}")
        command = f" ({self.command})" if self.command else ""
        return f"process {self.process.pid}{command} of {who} {says}"


_SAYS: Final = {
    UnlimitedKind.UNBOOKED: (
        "holds {size} of {gpu} that it did not ask the shim for: it found a driver library without "
        "the shim, and no limit holds for it"
    ),
    UnlimitedKind.UNLIMITED: (
        "uses {gpu} without limits: the shim does not know its driver's functions"
    ),
    UnlimitedKind.OVER_LIMIT: "holds {size} of {gpu} beyond its container's limit",
    UnlimitedKind.STRANGER: "holds {size} of {gpu}, which is granted to others",
    UnlimitedKind.OVERDRAWN: "launches on {gpu} outside of its container's turns",
}

UNLIMITED: Final = {UnlimitedKind.UNBOOKED: "session", UnlimitedKind.UNLIMITED: "entry"}
"""Kinds of processes without any limit, and what they lack."""

_NONE: Final = dict.fromkeys(UnlimitedKind, 0)
Key = tuple[UnlimitedKind, Process, GpuUUID]


@dataclass(slots=True)
class Tally:
    """What the metrics tell of the audit. mismatches: processes with another pod's limit.

    unlimited: processes without limits, by the labels of their container and what they lack.
    """

    now: Counter[UnlimitedKind] = field(default_factory=lambda: Counter(_NONE))
    found: Counter[UnlimitedKind] = field(default_factory=lambda: Counter(_NONE))
    unlimited: Counter[tuple[str, ...]] = field(default_factory=Counter)
    ended: int = 0
    mismatches: int = 0


def suspects(snapshot: Snapshot) -> Iterator[Suspect]:
    """Yield those of this look; none where the driver did not answer."""
    views = {view.grant.id: view for view in snapshot.containers}
    on: dict[GpuUUID, list[ContainerSnapshot]] = {}
    for view in snapshot.containers:
        for device in view.devices:
            on.setdefault(device.gpu.uuid, []).append(view)
    for one in snapshot.residents:
        known = views.get(one.allocation) if one.allocation else None
        if one.booked is None and (kind := _kind(one, known, on.get(one.gpu.uuid, ()))):
            yield _suspect(kind, one, known, one.held or Bytes(0))
    present = by_holder(snapshot.residents)
    cgroups = {one.process: one.of for one in snapshot.residents}
    for view in snapshot.containers:
        for process in view.unlimited:
            of = cgroups.get(process)
            one = Resident(process, view.devices[0].gpu, None, view.grant.id, of=of)
            yield replace(_suspect(UnlimitedKind.UNLIMITED, one, view, Bytes(0)), certain=True)
        for device in () if view.whole else view.devices:
            own = present.get((view.grant.id, device.gpu.uuid), ())
            held = sum(one.held or 0 for one in own)
            # Where one of them is in no books that is a finding of its own.
            if all(one.booked is not None for one in own) and held > device.limit + TOLERANCE:
                worst = max(own, key=lambda one: (one.held or 0, one.process.pid))
                taken = Bytes(held - device.limit)
                yield _suspect(UnlimitedKind.OVER_LIMIT, worst, view, taken)
            for one in own if view.overdrawn else ():
                yield _suspect(UnlimitedKind.OVERDRAWN, one, view, Bytes(0))


def _kind(
    one: Resident, view: ContainerSnapshot | None, on: Sequence[ContainerSnapshot]
) -> UnlimitedKind | None:
    """Classify a process that is in no books; None for one of a container with the whole GPU.

    view: of its allocation. on: all of its GPU.
    """
    if one.allocation is not None:
        own = [view] if view else []
    else:
        sharing = [other for other in on if not other.whole]
        own = [other for other in sharing or on if one.of and _is_user(other, one.of)]
        if not own:
            # Without a cgroup it may be of the container that has the whole GPU.
            return UnlimitedKind.STRANGER if sharing or (on and one.of) else None
    sure = bool(own) and all(other.read and not other.whole for other in own)
    return UnlimitedKind.UNBOOKED if sure else None


def _is_user(view: ContainerSnapshot, of: Membership) -> bool:
    return any(same_pod(one.uid, of) for one in (view.owner, *view.users))


def _suspect(
    kind: UnlimitedKind, one: Resident, view: ContainerSnapshot | None, taken: Bytes
) -> Suspect:
    owner = view.owner if view else None
    of = one.of
    others = of is not None and view is not None and not _is_user(view, of)
    called = one.booked is not None and not one.adopted
    certain = not others and (called or bool(of and of.container_id))
    pods: tuple[PodUID, ...] = (of.pod_uid,) if of else ()
    if view:  # of all that share a claim those that it may be of
        sharing = tuple(dict.fromkeys(user.uid for user in (view.owner, *view.users)))
        pods = tuple(pod for pod in sharing if of is not None and same_pod(pod, of)) or sharing
    pod = next(iter(pods), None)
    return Suspect(kind, one.process, one.gpu, taken, owner, pod, certain, also=pods[1:])


def mismatches(snapshot: Snapshot) -> frozenset[tuple[str, Process]]:
    """Return the processes with a slot in the books of another pod than their cgroup's.

    Claims may be for several pods, and are left to the check at HELLO.
    """
    pods = {
        view.grant.id: view.owner.uid
        for view in snapshot.containers
        if not isinstance(view.grant.source, ClaimSource)
    }
    return frozenset(
        (one.allocation, one.process)
        for one in snapshot.residents
        if one.allocation in pods
        and one.booked is not None
        and one.of is not None
        and not same_pod(pods[one.allocation], one.of)
    )
