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
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

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
    holder_with,
    moved,
)
from gpumanager.scheduler.quota.limits import NodeClass, NodeClasses
from gpumanager.scheduler.scoring.host_resources import HostResources, HostUsage
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape, asking, needs_of
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix

LOG: Final = 65536
"""Changes that are remembered; a reader that is farther behind reads everything."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What a pod holds by our decision. gpus: of each container, whatever becomes of the node that
    lists them. until: seconds, any clock."""

    holder: Holder
    gpus: tuple[frozenset[GpuUUID], ...]
    until: float

    @property
    def packing(self) -> Packing | None:
        """Return where its containers go; None where one of the GPUs is not there now."""
        found = self.holder.packing
        whole = found and [len(held) for held in found.gpus] == [len(held) for held in self.gpus]
        return found if whole else None


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
        self._log: deque[str] = deque(maxlen=log)
        self._assumed: dict[PodUID, dict[str, Assumed]] = {}
        self._on: dict[str, dict[PodUID, Holder]] = {}
        """Holders by node, also of nodes that are not known."""
        self._loads = HostUsage()
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

    def node(self, said: NodeSaid) -> None:
        """Add or update a node by its object."""
        name = said.name
        known = self.nodes.get(name)
        before = known or NodeState(name, offered=self._offered.get(name, NOTHING_OFFERED))
        after = before.with_object(said)
        if known is None or after is not before:
            self._become(name, after)
            if new := {gpu.model for gpu in after.topology.gpus} - self.models:
                self.models |= new  # the same value as long as there is nothing new
            for uid in tuple(self._on.get(name, ())):
                self._hold(uid, name, self._holder_on(uid, after))
            self._changed(name)

    def node_gone(self, name: str) -> None:
        if name in self.nodes:
            self._become(name, None)

    def only_nodes(self, names: Iterable[str]) -> None:
        """Remove all other nodes."""
        for name in self.nodes.keys() - set(names):
            self.node_gone(name)

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
        elif not any(asking(pod)):
            if node:
                host = HostResources(pod.cpu_milli, pod.memory_mib)
                self._load(self._loads.put(pod.uid, node, host))
        elif isinstance(ask := needs_of(pod), PodShape):
            self.learn(pod, ask)
            if not node:
                return
            holder = holder_with(ask, self.nodes.get(node) or NodeState(node), pod)
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
        self._load(self._loads.gone(uid))
        for node in self._forget(uid):
            self._release(uid, node)

    def only_pods(self, uids: Iterable[PodUID]) -> None:
        """Remove all other pods; what is assumed stays."""
        for uid in {*self.known, *self._loads.all()} - set(uids):
            self.pod_gone(uid)

    def assume(
        self, pod: PodView, node: str, ask: PodShape, packing: Packing, until: float
    ) -> None:
        """Count our decision; an earlier one for another node stays until it is withdrawn."""
        holder = Holder(ask.placed, packing, pod.namespace, pod.name)
        there = self.nodes[node].topology.gpus
        gpus = tuple(frozenset(there[place].uuid for place in held) for held in packing.gpus)
        self._assumed.setdefault(pod.uid, {})[node] = Assumed(holder, gpus, until)
        self._hold(pod.uid, node, holder)
        self._changed(node)

    def withdraw(self, uid: PodUID, node: str) -> None:
        """Drop an assumption: the pod was not bound there."""
        on = self._assumed.get(uid, {})
        if on.pop(node, None):
            if not on:
                del self._assumed[uid]
            self._release(uid, node)

    def confirm(self, uid: PodUID, node: str) -> None:
        """Drop what was assumed of the pod on other nodes: it was bound here."""
        for other in tuple(self._assumed.get(uid, ())):
            if other != node:
                self.withdraw(uid, other)

    def expire(self, now: float) -> tuple[PodUID, ...]:
        """Withdraw assumptions not confirmed in time; now: when the watch of pods last answered."""
        every = (
            (uid, on, one.until) for uid, of in self._assumed.items() for on, one in of.items()
        )
        late = [(uid, node) for uid, node, until in every if until <= now]
        for uid, node in late:
            self.withdraw(uid, node)
        return tuple(dict.fromkeys(uid for uid, _ in late))

    def assumed_on(self, uid: PodUID, node: str) -> Assumed | None:
        """Return what is assumed of the pod there."""
        return self._assumed.get(uid, {}).get(node)

    @property
    def gpu_pods_cpu_part(self) -> float:
        """Return the part of the CPU taken on nodes with GPUs that pods with GPUs take."""
        taken = self._asked + self._loaded
        return self._asked / taken if self._asked else 1.0

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many there are, for people and metrics."""
        return {"nodes": len(self.nodes), "pods": len(self.bound), "assumed": len(self._assumed)}

    def _holder_on(self, uid: PodUID, node: NodeState) -> Holder | None:
        """Return what the pod holds on the node as it is now."""
        if uid in self.bound:
            return holder_of(node, self.known[uid])
        assumed = self.assumed_on(uid, node.name)
        if assumed is None:
            return None
        holder = moved(assumed.holder, assumed.gpus, node.topology)
        self._assumed[uid][node.name] = replace(assumed, holder=holder)
        return holder

    def _hold(self, uid: PodUID, node: str, holder: Holder | None) -> None:
        if holder is not None:
            self._on.setdefault(node, {})[uid] = holder
            known = self.nodes.get(node)
            self._observer.held(node, known.kind if known else PLAIN, uid, holder)

    def _forget(self, uid: PodUID) -> set[str]:
        """Return the nodes on which it was, or was assumed to be."""
        nodes = set(self._assumed.pop(uid, ()))
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
            self._become(name, node.with_holders(on, self._loads.on(name)))

    def _load(self, names: Iterable[str]) -> None:
        """Count what pods without GPUs take there; it does not matter where no GPUs are."""
        for name in names:
            node = self.nodes.get(name)
            if node is not None and node.topology.gpus:
                self._become(name, node.with_load(self._loads.on(name)))

    def _become(self, name: str, node: NodeState | None) -> None:
        """Replace the node's value, and note the change; None: it is gone."""
        before = self.nodes.get(name)
        self.classes.move(name, before.kind if before else None, node.kind if node else None)
        if before is None or node is None or before.topology is not node.topology:
            self.gpus.subtract([gpu.model for gpu in before.topology.gpus] if before else ())
            self.gpus.update([gpu.model for gpu in node.topology.gpus] if node else ())
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
