"""Preemption: victims, so that a pod fits on single GPUs, not only by the sum. Pure, in pieces.

kube-scheduler chooses victims until the sums suffice. If the pod then fits on some node, these
victims are kept. If it fits on none, more are added: pods of lower priority that hold GPUs of the
node and that no PodDisruptionBudget may protect, as few and as unimportant as suffice
(decision 0063).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.scheduler.cooperative import Work, batches
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.state import ClusterState

Victims = tuple[PodUID, ...]
TRIED: Final = 32
"""Nodes on which more victims are searched for: each takes as many trials as it has pods."""
JUDGED_AT_ONCE: Final = 4
"""Nodes."""


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
    for names in batches(tuple(victims), JUDGED_AT_ONCE):
        fitting = preempt(state, ask, {name: victims[name] for name in names})
        found.update((name, victims[name]) for name in fitting)
        yield
    if found or protected is None or pod.wants_others:
        return found
    # These suffice on no node. Example: they hold halves of two GPUs, and the pod asks for a whole
    # one. Try others too.
    for name, given in islice(victims.items(), TRIED):
        others = _others(state, pod, name, given, protected)
        fewest = yield from _fewest(
            others,
            lambda some: bool(preempt(state, ask, {name: (*given, *some)})),  # noqa: B023
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
    levels = sorted({one.priority for one in others})
    lowest = (tuple(one.uid for one in others if one.priority <= level) for level in levels)
    some = yield from _first(lowest, enough)
    kept = yield from _first(((uid,) for uid in some), enough)
    if kept:
        return kept
    kept = some
    for spared in reversed(some):  # the most important first
        rest = tuple(uid for uid in kept if uid != spared)
        kept = rest if enough(rest) else kept
        yield
    return kept


def _first(tries: Iterable[Victims], enough: Callable[[Victims], bool]) -> Work[Victims]:
    for some in tries:
        fits = enough(some)
        yield
        if fits:
            return some
    return ()


def preempt(
    state: ClusterState, ask: PodShape, victims: Mapping[str, Iterable[PodUID]]
) -> dict[str, Packing]:
    """Return the nodes of these on which the pod fits once their victims are gone.

    All victims stay victims: those that we could spare may be there for CPU, ports or spreading,
    which kube-scheduler has checked. Where there are none the node is left out: kube-scheduler
    takes one without victims for an error that ends the whole preemption.
    """
    found = {}
    for name, uids in victims.items():
        node, gone = state.nodes.get(name), frozenset(uids)
        if node and gone:
            holders = {uid: one for uid, one in node.holders.items() if uid not in gone}
            packing = node.with_holders(holders, node.load).place(ask)
            if isinstance(packing, Packing):
                found[name] = packing
    return found
