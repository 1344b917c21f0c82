"""Which pod is being admitted, by the kubelet's list of pods and the order of its calls. Pure.

The kubelet admits one pod at a time and lists it before it calls us. So a pod that is listed now
and was not at the previous call is the one being admitted; no new pod means the same pod as before,
with its other resource or its next container. The two resources come in any order. This steers
placement and explains it; the owner of an allocation is decided in PreStartContainer only.

`observe` takes the state and one call, and returns the state after it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.pod import ContainerView, PodView
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.values import GpuChoice, Request
from gpumanager.units import CORES_PER_GPU

View = tuple[PodView, ...]

PAIR_AGE: Final = 2.0
"""Seconds within which, seeing no pods, two calls are taken for the halves of one container."""


@dataclass(frozen=True, slots=True)
class PluginCall:
    """One GetPreferredAllocation, or Allocate without one before it.

    nonce: fresh; names what this call begins, if it begins something.
    again: it asks for the very IDs that the open transaction was already answered.
    """

    resource: str
    size: int
    now: float
    nonce: AllocationID
    again: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that may be the one under admission, and how far it has come.

    place: which of its containers that ask for GPUs; done: resources of it that were asked.
    """

    pod: PodView
    place: int = 0
    done: frozenset[str] = frozenset()

    @property
    def container(self) -> ContainerView:
        return asking(self.pod)[self.place]

    @property
    def container_complete(self) -> bool:
        asked = (one for one in (VCORE, VMEMORY) if _amount(self.container, one) != 0)
        return self.done.issuperset(asked)

    @property
    def pod_complete(self) -> bool:
        return self.container_complete and self.place + 1 == len(asking(self.pod))

    def same(self, resource: str, size: int) -> "Candidate | None":
        """After the other half of the current container, if it can be that."""
        if resource in self.done or not _matches(self.container, resource, size):
            return None
        return replace(self, done=self.done | {resource})

    def following(self, resource: str, size: int) -> "Candidate | None":
        """After the first half of the next container, if it can be that."""
        if not self.container_complete or self.pod_complete:
            return None
        return Candidate(self.pod, self.place + 1).same(resource, size)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The container being admitted.

    admission: the same for all containers of the pod. allocation: this container's.
    sizes: what was asked so far, by resource. viewed: its beginning was seen in the list of pods.
    awaiting: the resource for which IDs were offered and Allocate has to come.
    plan: the GPUs chosen for it.
    """

    admission: str
    allocation: AllocationID
    began: float
    viewed: bool
    candidates: tuple[Candidate, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    awaiting: str | None = None
    plan: GpuChoice | None = None

    @property
    def request(self) -> Request | None:
        """What the container asks for in whole, if its candidates agree."""
        shapes = {(one.container.cores, one.container.blocks) for one in self.candidates}
        if len(shapes) != 1:
            return None
        cores, blocks = shapes.pop()
        return None if cores is None or blocks is None else Request(cores, blocks)

    @property
    def candidate(self) -> Candidate | None:
        return self.candidates[0] if len(self.candidates) == 1 else None

    @property
    def abandoned(self) -> bool:
        """Whoever it is, something of it was never asked for: if it is over, it was rejected."""
        return bool(self.candidates) and not any(one.pod_complete for one in self.candidates)

    def with_call(self, call: PluginCall) -> "Transaction":
        return replace(self, sizes={**self.sizes, call.resource: call.size})


@dataclass(frozen=True, slots=True)
class Admission:
    """What is known between two calls. seen: UIDs listed at the previous one."""

    seen: frozenset[PodUID] = frozenset()
    open: Transaction | None = None


class PodListShows(Enum):
    """What the list of pods shows with a call."""

    NEW = "pods that were not there at the previous call"
    SAME = "none that is new"
    UNREAD = "it cannot be read"


@dataclass(frozen=True, slots=True)
class Turn:
    """One call, and what is known when it comes. new: the new pods. fits: as of `observe`."""

    call: PluginCall
    open: Transaction | None
    seen: PodListShows
    new: View
    fits: Callable[[PodView], bool]


def apart(open_: Transaction, call: PluginCall) -> Transaction | None:
    """`call` as the beginning of something new, where only the order made it a second half.

    Only whole GPUs may be asked for without memory, so only memory after them can be another's.
    """
    alone = open_.sizes.get(VCORE, 0) >= CORES_PER_GPU
    if open_.candidates or len(open_.sizes) == 1 or call.resource == VCORE or not alone:
        return None
    return _opened(call, viewed=open_.viewed)


def asking(pod: PodView) -> tuple[ContainerView, ...]:
    """Return the containers that ask for our resources, in the order of admission."""
    return tuple(one for one in pod.containers if one.cores != 0 or one.blocks != 0)


def asks(pod: PodView, sizes: Mapping[str, int]) -> bool:
    """Return whether one of its containers asks for these amounts."""
    return any(all(_matches(one, *size) for size in sizes.items()) for one in asking(pod))


def second_half_of_an_unread_one(turn: Turn) -> Transaction | None:
    """The other resource of a container whose first came while no pods could be read.

    Example: cores during a restart of the kubelet's HTTP server, memory after it. The pod is new
    in the list only now, and asks for both amounts.
    """
    open_, call = turn.open, turn.call
    if open_ is None or open_.viewed or not _could_pair(open_, call):
        return None
    halves = {**open_.sizes, call.resource: call.size}
    found = tuple(
        Candidate(pod, 0, frozenset(halves))
        for pod in turn.new
        if asking(pod)
        and all(_matches(asking(pod)[0], resource, size) for resource, size in halves.items())
    )
    return replace(open_.with_call(call), viewed=True, candidates=found) if found else None


def first_of_a_new_pod(turn: Turn) -> Transaction:
    """One of the new pods whose first container asks this; of several, those that fit.

    Example: two pods are listed at once, and only the second asks for 30 cores.
    """
    started = (
        Candidate(pod).same(turn.call.resource, turn.call.size) for pod in turn.new if asking(pod)
    )
    candidates = tuple(one for one in started if one is not None)
    if len(candidates) > 1:
        candidates = tuple(one for one in candidates if turn.fits(one.pod)) or candidates
    return _opened(turn.call, viewed=True, candidates=candidates)


def other_resource(turn: Turn) -> Transaction | None:
    """Return the other half of the open container. Example: memory after cores."""
    if turn.open is None or not (same := _advance(turn.open, Candidate.same, turn.call)):
        return None
    return replace(turn.open.with_call(turn.call), candidates=same)


def other_resource_soon(turn: Turn) -> Transaction | None:
    """The same where no list tells that no other pod has come: only if it comes at once."""
    if turn.open is None or not _could_pair(turn.open, turn.call):
        return None
    return other_resource(turn)


def next_container(turn: Turn) -> Transaction | None:
    """The pod goes on. Example: its sidecar after its app, of which both halves are answered."""
    if turn.open is None or not (following := _advance(turn.open, Candidate.following, turn.call)):
        return None
    opened = _opened(turn.call, viewed=True, candidates=following)
    return replace(opened, admission=turn.open.admission)


def asks_again(turn: Turn) -> Transaction | None:
    """For the very IDs that were answered. Example: an Allocate that the kubelet repeats."""
    return turn.open if turn.call.again else None


def asks_for_a_half_again(turn: Turn) -> Transaction | None:
    """The same without a list: with both halves answered it may be another pod, in its place."""
    return turn.open if turn.call.again and turn.open and len(turn.open.sizes) == 1 else None


def pairs_by_order(turn: Turn) -> Transaction | None:
    """Of no pod that is known, and soon enough to be the other half: the order tells."""
    if turn.open is None or not _could_pair(turn.open, turn.call):
        return None
    return replace(turn.open.with_call(turn.call), candidates=())


def pairs_with_an_unknown(turn: Turn) -> Transaction | None:
    """The same without a list: not with a container that is known and asks for something else."""
    return None if turn.open and turn.open.candidates else pairs_by_order(turn)


def something_new(turn: Turn) -> Transaction:
    """Nothing that is open explains it. Example: a static pod that is put back under its UID."""
    return _opened(turn.call, viewed=turn.seen is PodListShows.SAME)


TRANSITIONS: Final[Mapping[PodListShows, tuple[Callable[[Turn], Transaction | None], ...]]] = {
    PodListShows.NEW: (second_half_of_an_unread_one, first_of_a_new_pod),
    PodListShows.SAME: (other_resource, next_container, asks_again, pairs_by_order, something_new),
    PodListShows.UNREAD: (
        asks_for_a_half_again,
        other_resource_soon,
        pairs_with_an_unknown,
        something_new,
    ),
}
"""What a call can be, likeliest first. The last of each row always answers."""


def observe(
    known: Admission,
    call: PluginCall,
    view: View | None,
    holders: Collection[PodUID] = (),
    fits: Callable[[PodView], bool] = lambda _: True,
) -> Admission:
    """What is known after `call`: the first rule of TRANSITIONS that answers.

    view: the pods listed during the call, None where they could not be read.
    holders: UIDs of pods that hold IDs already. fits: whether a pod's whole request could be met.
    """
    new = tuple(
        pod
        for pod in view or ()
        if pod.uid not in known.seen and pod.uid not in holders and not pod.ended
    )
    seen = PodListShows.UNREAD if view is None else PodListShows.NEW if new else PodListShows.SAME
    turn = Turn(call, known.open, seen, new, fits)
    open_ = next(filter(None, (rule(turn) for rule in TRANSITIONS[seen])))
    return Admission(known.seen if view is None else frozenset(pod.uid for pod in view), open_)


def _advance(
    open_: Transaction, step: Callable[[Candidate, str, int], Candidate | None], call: PluginCall
) -> tuple[Candidate, ...]:
    steps = (step(one, call.resource, call.size) for one in open_.candidates)
    return tuple(one for one in steps if one is not None)


def _could_pair(open_: Transaction, call: PluginCall) -> bool:
    return call.resource not in open_.sizes and call.now - open_.began < PAIR_AGE


def _opened(
    call: PluginCall, *, viewed: bool, candidates: tuple[Candidate, ...] = ()
) -> Transaction:
    return Transaction(
        admission=str(call.nonce),
        allocation=call.nonce,
        began=call.now,
        viewed=viewed,
        candidates=candidates,
        sizes={call.resource: call.size},
    )


def _amount(container: ContainerView, resource: str) -> int | None:
    return container.cores if resource == VCORE else container.blocks


def _matches(container: ContainerView, resource: str, size: int) -> bool:
    """Return True if the container asks for `size` of it; an amount not understood may be any."""
    return _amount(container, resource) in {size, None}
