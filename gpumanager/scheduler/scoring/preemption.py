"""Preemption: victims, so that a pod fits on single GPUs, not only by the sum. Pure, in pieces.

kube-scheduler chooses victims until the sums suffice. If the pod then fits on some node, these
victims are kept. If it fits on none, more are added: pods of lower priority that hold GPUs of the
node and that no PodDisruptionBudget may protect, as few and as unimportant as suffice
(decision 0063).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Final

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.scheduler.cooperative import Work
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.state import ClusterState

Victims = tuple[PodUID, ...]
TRIED: Final = 32
"""Nodes on which more victims are searched for: each takes as many trials as it has pods."""


def chosen(
    state: ClusterState,
    pod: PodView,
    ask: PodShape,
    victims: Mapping[str, Victims],
    protected: Collection[str] | None,
) -> Work[dict[str, Victims]]:
    """Return the nodes on which the pod fits once these are gone, each with all of them, those of
    the highest priority first. victims: as kube-scheduler chose them. protected: namespaces where
    pods may be; None: that is not known."""
    found: dict[str, Victims] = {}
    for name, uids in victims.items():
        if fits_without(state, ask, name, uids):
            found[name] = uids
        yield
    if found or protected is None or pod.wants_others:
        return found
    # These suffice on no node. Example: they hold halves of two GPUs, and the pod asks for a whole
    # one. Try others too.
    for name, given in islice(victims.items(), TRIED):
        others = _others(state, pod, name, given, protected)
        fewest = yield from _fewest(
            others,
            lambda some: fits_without(state, ask, name, (*given, *some)),  # noqa: B023
        )
        if fewest:
            # kube-scheduler takes the first for the most important. One that has gone meanwhile
            # counts as the least.
            known = {uid: state.known.get(uid) for uid in (*given, *fewest)}
            ranks = {uid: -one.priority if one else 0 for uid, one in known.items()}
            found[name] = tuple(sorted(ranks, key=ranks.__getitem__))
    return found


def _others(
    state: ClusterState, pod: PodView, name: str, given: Victims, protected: Collection[str]
) -> list[PodView]:
    """Return further victims, the least important first; none if the priority of one of the given
    victims is unknown, since victims have to be in order."""
    node = state.nodes.get(name)
    if node is None or not given or any(uid not in state.bound for uid in given):
        return []
    there = (
        state.known[uid]
        for uid in node.holders
        if uid not in given and state.bound.get(uid) == name
    )
    found = (
        one
        for one in there
        if one.priority < pod.priority and not one.terminating and one.namespace not in protected
    )
    return sorted(found, key=lambda one: one.priority)


def _fewest(others: Sequence[PodView], enough: Callable[[Victims], bool]) -> Work[Victims]:
    """Return, of the lowest priorities that suffice, one pod where one is enough, or several that
    are all needed. Empty where all together are not enough."""
    # All of the lowest priority, all of the two lowest, and so on.
    kept: Victims = ()
    for level in sorted({one.priority for one in others}):
        some = tuple(one.uid for one in others if one.priority <= level)
        kept = some if enough(some) else ()
        yield
        if kept:
            break
    for uid in kept:
        alone = enough((uid,))
        yield
        if alone:
            return (uid,)
    for spared in reversed(kept):  # the most important first
        rest = tuple(uid for uid in kept if uid != spared)
        kept = rest if enough(rest) else kept
        yield
    return kept


def fits_without(
    state: ClusterState, ask: PodShape, name: str, victims: Collection[PodUID]
) -> bool:
    """Return whether the pod fits on the node once these are gone.

    All victims stay victims: those that we could spare may be there for CPU, ports or spreading,
    which kube-scheduler has checked. A node without any is left out: kube-scheduler takes one
    without victims for an error that ends the whole preemption.
    """
    node = state.nodes.get(name)
    if node is None or not victims:
        return False
    holders = {uid: one for uid, one in node.holders.items() if uid not in victims}
    return isinstance(node.with_holders(holders, node.load).place(ask), Packing)
