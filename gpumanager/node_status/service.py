"""This node's dealings with the API server, all of them in the background.

Nothing here is waited for: admission, limits and metrics go on while the API server is away, and
without any. What the node and its pods should say is compared with what they say; what happened
goes out as events.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gpumanager.gpu.health.reports import NodeCondition, NodeEvent
from gpumanager.gpu.inventory import inventory
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import Grant
from gpumanager.ids import PodUID
from gpumanager.kube.client import MERGE, STRATEGIC, KubeClient
from gpumanager.kube.errors import Object
from gpumanager.kube.events import EventRecorder, timestamp
from gpumanager.kube.informer import Informer, ObjectStore
from gpumanager.kube.writer import Task, Writer, retry_on_conflict
from gpumanager.names import LABEL_MEMORY, LABEL_PRODUCT
from gpumanager.node_status.labels import Software, node_labels
from gpumanager.node_status.pod_reconciler import NodePods, PodReconciler

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 10.0
ONLY_WITH_GPUS: Final = (LABEL_PRODUCT, LABEL_MEMORY)
"""Labels of ours that go when the last GPU does."""
STATUS: Final = {True: "True", False: "False", None: "Unknown"}


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

    Every method but `run` returns at once and never fails. node_changed: called with the node's
    object; None where there is none any more.
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
        self.api, self.node_name = api, node
        self._labels = labels or {}
        self._wake = asyncio.Event()
        self._unhealthy: frozenset[GpuUUID] | None = None
        self._conditions: dict[str, NodeCondition] = {}
        self.node_changed: list[Callable[[Object | None], None]] = [lambda _: self._wake.set()]
        self.nodes = ObjectStore("/api/v1/nodes", dict, self._take_node)
        self.pods = NodePods(self._wake.set)
        informer = partial(Informer, api, cached=True, clock=clock)
        self.node_informer = informer(self.nodes, fields=f"metadata.name={node}")
        self.pod_informer = informer(self.pods, fields=f"spec.nodeName={node}")
        self.events = EventRecorder(api, node, self.pods.reference, elapsed=clock)
        self._pods = PodReconciler(api, self.pods, self.events, recycle=recycle, clock=clock)
        self.writer = Writer(clock=clock)

    @property
    def node(self) -> Object | None:
        """Return the node's object; None where it is not known."""
        return next(iter(self.nodes.known.values()), None)

    def _take_node(self, _name: str, _before: object, after: Object | None) -> None:
        for changed in self.node_changed:
            changed(after)

    def condition(self, condition: NodeCondition) -> None:
        """Keep the node's condition of this type like this from now on."""
        self._conditions[condition.type] = condition
        self._wake.set()

    def event(self, event: NodeEvent) -> None:
        """Record what happened to the node."""
        self.pod_event(None, event)

    def pod_event(self, pod: PodUID | None, event: NodeEvent) -> None:
        """Record what happened to a pod, by the UID that the kubelet knows."""
        self.events.record(pod, warning=event.warning, reason=event.reason, message=event.message)
        self._wake.set()

    def correct(self, *_: object) -> None:
        """Compare the annotations of pods soon with the journal, which has changed."""
        self._wake.set()

    def pod_name(self, pod: PodUID) -> str | None:
        """Return namespace/name of a pod of this node, by the kubelet's UID, where it is known."""
        known = self.pods.get(pod)
        return None if known is None else known.full_name

    def terminating(self, pod: PodUID) -> bool:
        """Return whether a pod of this node, by the kubelet's UID, is being deleted."""
        known = self.pods.get(pod)
        return known is not None and known.terminating

    async def run(self, facts: Callable[[], Facts | None]) -> None:
        """Reconcile for as long as the task lives. facts: called before each round; None while
        nothing is to be written."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.node_informer.run())
            group.create_task(self.pod_informer.run())
            group.create_task(
                self.writer.run(
                    lambda: self._tasks(found) if (found := facts()) else (),
                    *(self._wake, ROUND_SECONDS),
                )
            )

    def _tasks(self, facts: Facts) -> Iterator[Task]:
        # An agent that has just begun to look may have said so before.
        before, self._unhealthy = self._unhealthy, facts.unhealthy
        for gpu in facts.unhealthy - (before or frozenset()):
            message = f"{gpu} is out of use: this pod keeps it, and its work there may fail"
            for pod in holders(gpu, facts):
                once, reason = before is None, "GpuUnhealthy"
                self.events.record(pod, warning=True, reason=reason, message=message, once=once)
        closed = facts.unhealthy | facts.withheld
        labels = node_labels(facts.topology.gpus, facts.software, self._labels)
        if self.node is not None:
            path, now = f"/api/v1/nodes/{self.node_name}", timestamp(time.time())
            if patch := metadata_patch(self.node, labels, inventory(facts.topology, closed)):
                yield self._node_task("labels", path, patch, MERGE)
            if patch := status_patch(self.node, self._conditions.values(), now):
                yield self._node_task("conditions", f"{path}/status", patch, STRATEGIC)
        yield from self._pods.tasks(facts.allocations, facts.topology)
        yield from self.events.tasks()

    def _node_task(self, what: str, path: str, patch: dict[str, Any], kind: str) -> Task:
        async def write() -> None:
            self.nodes.put(await retry_on_conflict(lambda: self.api.patch(path, patch, kind)))

        return Task(("node", what), f"{what} of node {self.node_name}", write)


def metadata_patch(
    node: Object, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the merge patch after which the node has these; None where it has."""
    has = {name: node["metadata"].get(name) or {} for name in ("labels", "annotations")}
    gone = {key: None for key in ONLY_WITH_GPUS if key in has["labels"] and key not in labels}
    changed: dict[str, Any] = {
        name: {key: text for key, text in wanted.items() if has[name].get(key) != text}
        for name, wanted in (("labels", labels), ("annotations", annotations))
    }
    changed["labels"] |= gone
    changed = {name: fields for name, fields in changed.items() if fields}
    return {"metadata": changed} if changed else None


def status_patch(
    node: Object, conditions: Iterable[NodeCondition], now: str
) -> dict[str, Any] | None:
    """Return the strategic patch of its status after which the node has these; None where it
    has."""
    found = {one.get("type"): one for one in (node.get("status") or {}).get("conditions") or ()}
    changed: list[Object] = []
    for wanted in conditions:
        has = found.get(wanted.type, {})
        new = {
            "type": wanted.type,
            "status": STATUS[wanted.status],
            "reason": wanted.reason,
            "message": wanted.message,
        }
        if any(has.get(name) != text for name, text in new.items()):
            same = has.get("status") == new["status"]
            since = (has.get("lastTransitionTime") if same else None) or now
            changed.append({**new, "lastHeartbeatTime": now, "lastTransitionTime": since})
    return {"status": {"conditions": changed}} if changed else None


def holders(gpu: GpuUUID, facts: Facts) -> tuple[PodUID, ...]:
    """Return the pods that have it. Of a claim that the watch has not told of, the one it was
    prepared for."""
    grants = [one for one in facts.allocations if gpu in one.gpus]
    pods = (facts.owners(one) or ((one.pod.uid,) if one.pod else ()) for one in grants)
    return tuple(dict.fromkeys(pod for each in pods for pod in each))


class Standalone:
    """A node without an API server: events and conditions go to the log alone."""

    def condition(self, condition: NodeCondition) -> None:
        log.debug("%s=%s: %s", condition.type, condition.status, condition.message)

    def event(self, event: NodeEvent) -> None:
        log.debug("%s: %s", event.reason, event.message)

    def pod_event(self, pod: PodUID, event: NodeEvent) -> None:
        log.debug("%s: %s: %s", pod, event.reason, event.message)

    def correct(self, *_: object) -> None:
        """There are no annotations."""

    def pod_name(self, _: PodUID) -> str | None:
        return None

    def terminating(self, _: PodUID) -> bool:
        return False


Cluster = NodeCluster | Standalone
