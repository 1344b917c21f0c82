"""The cluster as the extender knows it: nodes with their GPUs, and the pods that hold them.

Pure, but mutable: no clock, no wire. A pod's state is what the API server last showed, or what the
extender has just decided and is writing: an assumption, by pod and node. A pod may be assumed on
several nodes at once: after a bind with unknown outcome it may be bound to another node, and the
first bind may still succeed. An assumption ends when the watch shows the pod, when it is withdrawn,
or when it expires.

A change makes one new node value. It costs as much as that node's pods, whatever the size of the
cluster. Each change is noted in a log, which caches of verdicts read to find changed nodes.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.scheduler.node import (
    NOTHING_OFFERED,
    PLAIN,
    Holder,
    NodeSaid,
    NodeState,
    Offered,
    holder_of,
    moved,
)
from gpumanager.scheduler.quota.limits import NodeClass, NodeClasses
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import (
    NO_PREFERENCE,
    NO_RESOURCES,
    HostResources,
    PodShape,
    needs_of,
)
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix

LOG: Final = 65536
"""Changes that are remembered; a reader that is farther behind reads everything."""


class Assumed(NamedTuple):
    """What a pod holds by our decision. gpus: of each container, whatever becomes of the node that
    lists them. until: seconds, any clock."""

    gpus: tuple[frozenset[GpuUUID], ...]
    until: float


class HolderObserver:
    """Called for each change of what pods hold, as it is made. This one counts nothing."""

    def held(self, node: str, kind: NodeClass, uid: PodUID, holder: Holder) -> None:
        """Count the pod there, bound or assumed; called again where it, or the node's kind, has
        changed."""

    def gone(self, node: str, uid: PodUID) -> None:
        """Count it there no longer."""


class ClusterState:
    """Nodes by name. One owner, which changes it on one thread.

    habits: learn of each pod with GPUs that the API server shows, and when it is gone.
    """

    def __init__(
        self,
        log: int = LOG,
        observer: HolderObserver | None = None,
        habits: WorkloadMix | None = None,
    ) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.changes = 0
        """How many there have been."""
        self.classes = NodeClasses()
        self.gpus: Counter[str] = Counter()
        """How many GPUs there are, by product."""
        self.models: frozenset[str] = frozenset()
        """Products of all GPUs there are or have been."""
        self.known: dict[PodUID, PodView] = {}
        """Pods with GPUs that the API server has shown, bound or not."""
        self.bound: dict[PodUID, str] = {}
        """The nodes that the API server has bound them to."""
        self.assumed: dict[PodUID, dict[str, Assumed]] = {}
        """What pods hold by our decision, by node."""
        self._log: deque[str] = deque(maxlen=log)
        self._on: dict[str, dict[PodUID, Holder]] = {}
        """Holders by node, also of nodes that are not known."""
        self._plain: dict[PodUID, tuple[str, HostResources]] = {}
        """Pods without GPUs, and what they take of their nodes."""
        self._loads: dict[str, HostResources] = {}
        """Sums of that by node, so that one pod more or less costs constant time."""
        self._asked = self._loaded = 0
        """CPU that pods with, and without, GPUs take of nodes with GPUs."""
        self._observer = observer or HolderObserver()
        self._habits = habits or WorkloadMix()
        self._offered: dict[str, Offered] = {}
        """By node, also of nodes that are not known."""

    def since(self, change: int) -> Iterable[str] | None:
        """Return the nodes that changed after `change`, some repeatedly; None: too long ago."""
        missed = self.changes - change
        if missed > len(self._log):
            return None
        return islice(reversed(self._log), missed)

    def node_changed(self, _: str, before: NodeSaid | None, after: NodeSaid | None) -> None:
        """Add, update or remove a node by its object."""
        if after is not None:
            self.node(after)
        elif before is not None:
            self.node_gone(before.name)

    def node_gone(self, name: str) -> None:
        if name in self.nodes:
            self._become(name, None)

    def node(self, said: NodeSaid) -> None:
        """Add or update a node by its object."""
        name = said.name
        known = self.nodes.get(name)
        before = known or NodeState(name, offered=self._offered.get(name, NOTHING_OFFERED))
        after = before.with_object(said)
        if known is None or after is not before:
            self._become(name, after)
            for uid, holder in tuple(self._on.get(name, {}).items()):
                has = (
                    holder_of(holder.ask, after, self.known[uid])
                    if uid in self.bound
                    else moved(holder, self.assumed[uid][name].gpus, after.topology)
                )
                self._hold(uid, name, has)
            self._changed(name)

    def offer(self, name: str, offered: Offered) -> None:
        """Note what the node's slice offers to claims from now on."""
        if offered == self._offered.get(name, NOTHING_OFFERED):
            return
        self._offered[name] = offered
        if node := self.nodes.get(name):
            self._become(name, replace(node, offered=offered))

    def pod(self, pod: PodView, node: str) -> None:
        """Add or update a pod as the API server has it; node: empty for one that is not bound."""
        if pod.ended:
            self.pod_gone(pod.uid)
        elif not pod.asks:
            if node:
                self._load(pod.uid, node, HostResources(pod.cpu_milli, pod.memory_mib))
        elif isinstance(ask := needs_of(pod), PodShape):
            self.learn(pod, ask)
            if not node:
                return
            holder = holder_of(ask, self.nodes.get(node) or NodeState(node), pod)
            for old in self._forget(pod.uid) - {node}:
                self._release(pod.uid, old)
            self.bound[pod.uid] = node
            if self._on.get(node, {}).get(pod.uid) != holder:
                self._hold(pod.uid, node, holder)
                self._changed(node)

    def learn(self, pod: PodView, ask: PodShape) -> None:
        """Remember a pod with GPUs that the API server shows, bound or not."""
        if pod.uid not in self.known:
            self._habits.saw(ask, self.gpus, self.gpu_pods_cpu_part)
        self.known[pod.uid] = pod

    def pod_gone(self, uid: PodUID) -> None:
        """Free what a pod had that was deleted, or has ended."""
        if self.known.pop(uid, None):
            self._habits.left()
        self._load(uid)
        for node in self._forget(uid):
            self._release(uid, node)

    def only_pods(self, uids: Iterable[PodUID]) -> None:
        """Remove all other pods; what is assumed stays."""
        for uid in {*self.known, *self._plain} - set(uids):
            self.pod_gone(uid)

    def assume(
        self, pod: PodView, node: str, ask: PodShape, packing: Packing, until: float
    ) -> None:
        """Count our decision; an earlier one for another node stays until it is withdrawn."""
        holder = Holder(replace(ask, preference=NO_PREFERENCE), packing, pod.namespace, pod.name)
        there = self.nodes[node].topology.gpus
        gpus = tuple(frozenset(there[place].uuid for place in held) for held in packing.gpus)
        self.assumed.setdefault(pod.uid, {})[node] = Assumed(gpus, until)
        self._hold(pod.uid, node, holder)
        self._changed(node)

    def withdraw(self, uid: PodUID, node: str) -> None:
        """Drop an assumption: the pod was not bound there."""
        on = self.assumed.get(uid, {})
        if on.pop(node, None):
            if not on:
                del self.assumed[uid]
            self._release(uid, node)

    def confirm(self, uid: PodUID, node: str) -> None:
        """Drop what was assumed of the pod on other nodes: it was bound here."""
        for other in tuple(self.assumed.get(uid, ())):
            if other != node:
                self.withdraw(uid, other)

    def expire(self, now: float) -> tuple[PodUID, ...]:
        """Withdraw assumptions not confirmed in time; now: when the watch of pods last answered."""
        every = ((uid, on, one.until) for uid, of in self.assumed.items() for on, one in of.items())
        late = [(uid, node) for uid, node, until in every if until <= now]
        for uid, node in late:
            self.withdraw(uid, node)
        return tuple(dict.fromkeys(uid for uid, _ in late))

    def assumed_on(self, uid: PodUID, node: str) -> Packing | None:
        """Return where its containers go by our decision; None where there is none, or one of the
        GPUs is not there now."""
        assumed = self.assumed.get(uid, {}).get(node)
        found = self._on[node][uid].packing if assumed else None
        whole = assumed and found and [*map(len, found.gpus)] == [*map(len, assumed.gpus)]
        return found if whole else None

    def waits(self, uid: PodUID) -> bool:
        """Return whether a pod with GPUs is there and not bound."""
        return uid in self.known and uid not in self.bound

    @property
    def gpu_pods_cpu_part(self) -> float:
        """Return the part of the CPU taken on nodes with GPUs that pods with GPUs take."""
        taken = self._asked + self._loaded
        return self._asked / taken if self._asked else 1.0

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many there are, for people and metrics."""
        return {"nodes": len(self.nodes), "pods": len(self.bound), "assumed": len(self.assumed)}

    def _hold(self, uid: PodUID, node: str, holder: Holder) -> None:
        self._on.setdefault(node, {})[uid] = holder
        known = self.nodes.get(node)
        self._observer.held(node, known.kind if known else PLAIN, uid, holder)

    def _forget(self, uid: PodUID) -> set[str]:
        """Return the nodes on which it was, or was assumed to be."""
        nodes = set(self.assumed.pop(uid, ()))
        bound = self.bound.pop(uid, None)
        return nodes | {bound} if bound else nodes

    def _release(self, uid: PodUID, node: str) -> None:
        on = self._on.get(node, {})
        if on.pop(uid, None) is not None:
            self._observer.gone(node, uid)
            self._changed(node)
        if not on:
            self._on.pop(node, None)

    def _changed(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None:
            on = dict(self._on.get(name, {}))
            self._become(name, node.with_holders(on, self._loads.get(name, NO_RESOURCES)))

    def _load(self, uid: PodUID, node: str = "", host: HostResources = NO_RESOURCES) -> None:
        """Count what a pod without GPUs takes of a node; it does not matter where no GPUs are."""
        before = self._plain.pop(uid, ("", NO_RESOURCES))
        if host != NO_RESOURCES:
            self._plain[uid] = node, host
        if before == (node, host):
            return
        for name, more in ((before[0], NO_RESOURCES - before[1]), (node, host)):
            self._loads[name] = load = self._loads.get(name, NO_RESOURCES) + more
            if load == NO_RESOURCES:
                del self._loads[name]
            known = self.nodes.get(name)
            if known is not None and known.topology.gpus and known.load != load:
                self._become(name, known.with_load(load))

    def _become(self, name: str, node: NodeState | None) -> None:
        """Replace the node's value, and note the change; None: it is gone."""
        before = self.nodes.get(name)
        self.classes.move(name, before.kind if before else None, node.kind if node else None)
        if before is None or node is None or before.topology is not node.topology:
            self.gpus.subtract([gpu.model for gpu in before.topology.gpus] if before else ())
            self.gpus.update([gpu.model for gpu in node.topology.gpus] if node else ())
            if len(self.gpus) != len(self.models):  # else the same value stays
                self.models = frozenset(self.gpus)
        for one, sign in ((before, -1), (node, 1)):
            if one is not None and one.topology.gpus:
                self._asked += sign * one.asked.cpu_milli
                self._loaded += sign * one.load.cpu_milli
        if node is None:
            del self.nodes[name]
        else:
            self.nodes[name] = node
        self._log.append(name)
        self.changes += 1
