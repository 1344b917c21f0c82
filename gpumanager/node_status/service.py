"""This node's dealings with the API server, all of them in the background.

Nothing here is waited for: admission, limits and metrics go on while the API server is away, and
without any. What the node and its pods should say is compared with what they say; what happened
goes out as events.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpumanager.gpu.health.reports import NodeCondition, NodeEvent
from gpumanager.gpu.inventory import inventory
from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.grants.grant import Claimant, Grant
from gpumanager.ids import PodUID
from gpumanager.kube.client import KubeClient
from gpumanager.kube.events import EventRecorder
from gpumanager.kube.informer import Informer
from gpumanager.kube.writer import Task, Writer
from gpumanager.node_status.labels import Software, node_labels
from gpumanager.node_status.node_reconciler import NodeReconciler
from gpumanager.node_status.pod_reconciler import PodReconciler
from gpumanager.node_status.pods import NodePods

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true on this node now. allocations: the journal's live ones. withheld: GPUs on which
    schedulers should place no pod that asks for device IDs. owners: the pods that a grant is for,
    as far as known; a claim may have several."""

    topology: Topology
    allocations: tuple[Grant, ...] = ()
    software: Software = field(default_factory=Software)
    unhealthy: frozenset[GpuUUID] = frozenset()
    withheld: frozenset[GpuUUID] = frozenset()
    owners: Callable[[Grant], Collection[PodUID]] = lambda _: ()


class NodeCluster:
    """One node at one API server. labels: what --node-labels says. clock: monotonic seconds.

    Every method but `run` returns at once and never fails.
    """

    def __init__(
        self,
        api: KubeClient,
        node: str,
        *,
        labels: Mapping[str, str] | None = None,
        recycle: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access = api.access
        self.api, self.node_name = api, node
        self._labels = labels or {}
        self._wake = asyncio.Event()
        self._facts: Facts | None = None
        self.store = NodePods(self._wake.set)
        fields = f"spec.nodeName={node}"
        self.informer = Informer(api, self.store, fields=fields, cached=True, clock=clock)
        self.events = EventRecorder(api, node, self.store.reference, elapsed=clock)
        self.node = NodeReconciler(api, node, changed=self._wake.set, elapsed=clock)
        self.pods = PodReconciler(api, self.store, self.events, recycle=recycle, clock=clock)
        self.writer = Writer(clock=clock)

    def condition(self, condition: NodeCondition) -> None:
        """Keep a condition of the node like this from now on."""
        self.node.condition(condition)
        self._wake.set()

    def event(self, event: NodeEvent) -> None:
        """Record what happened to the node."""
        self._say(None, event)

    def pod_event(self, pod: PodUID, event: NodeEvent) -> None:
        """Record what happened to a pod, by the UID that the kubelet knows."""
        self._say(pod, event)

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        """Compare the annotations of `pod` soon with the journal, by which it has `gpus`."""
        log.debug("%s has %s", pod, ", ".join(gpu.uuid for gpu in gpus))
        self._wake.set()

    def pod_name(self, pod: PodUID) -> str | None:
        """Return namespace/name of a pod of this node, by the kubelet's UID, where it is known."""
        known = self.store.get(pod)
        return None if known is None else known.full_name

    def terminating(self, pod: PodUID) -> bool:
        """Return whether a pod of this node, by the kubelet's UID, is being deleted."""
        known = self.store.get(pod)
        return known is not None and known.terminating

    async def run(self, facts: Callable[[], Facts]) -> None:
        """Reconcile for as long as the task lives. facts: called before each round."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.informer.run())
                group.create_task(
                    self.writer.run(lambda: self._tasks(facts()), self._wake, ROUND_SECONDS)
                )
        finally:
            await self.api.close()

    def _say(self, pod: PodUID | None, event: NodeEvent) -> None:
        self.events.record(pod, warning=event.warning, reason=event.reason, message=event.message)
        self._wake.set()

    def _tasks(self, facts: Facts) -> Iterator[Task]:
        before, self._facts = self._facts, facts
        for gpu in facts.unhealthy - (before.unhealthy if before else frozenset()):
            message = f"{gpu} is out of use: this pod keeps it, and its work there may fail"
            for pod in holders(gpu, facts):
                # An agent that has just begun to look may have said so before.
                once, reason = before is None, "GpuUnhealthy"
                self.events.record(pod, warning=True, reason=reason, message=message, once=once)
        closed = facts.unhealthy | facts.withheld
        labels = node_labels(facts.topology.gpus, facts.software, self._labels)
        yield from self.node.tasks(labels, inventory(facts.topology, closed))
        yield from self.pods.tasks(facts.allocations, facts.topology)
        yield from self.events.tasks()


def holders(gpu: GpuUUID, facts: Facts) -> tuple[PodUID, ...]:
    """Return the pods that have it. Of a claim that the watch has not told of, the one it was
    prepared for."""
    grants = [one for one in facts.allocations if gpu in one.gpus]
    pods = (facts.owners(one) or ((one.pod.uid,) if one.pod else ()) for one in grants)
    return tuple(dict.fromkeys(pod for each in pods for pod in each))
