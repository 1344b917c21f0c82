"""This node's dealings with the API server, all of them in the background.

Nothing here is waited for: admission, limits and metrics go on while the API server is away, and
without any. What the node and its pods should say is compared with what they say; what happened
goes out as events.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from gpumanager.cluster.api import ApiServer
from gpumanager.cluster.labels import Software, inventory, node_labels
from gpumanager.cluster.node import Condition
from gpumanager.cluster.node_keeper import NodeKeeper
from gpumanager.cluster.notices import Notices
from gpumanager.cluster.pod_keeper import PodKeeper
from gpumanager.cluster.watch import PodWatch
from gpumanager.cluster.writer import Task, Writer
from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.grants.grant import Claimant, Grant
from gpumanager.kubelet.pods import PodUID

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true on this node now. allocations: the journal's live ones."""

    topology: Topology
    allocations: tuple[Grant, ...] = ()
    software: Software = field(default_factory=Software)
    unhealthy: frozenset[GpuUUID] = frozenset()


class Happening(Protocol):
    """Something that happened to a pod or to the node. reason: one word in CamelCase."""

    @property
    def warning(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


class NodeCluster:
    """One node at one API server. labels: what --node-labels says. clock: monotonic seconds.

    Every method but `run` returns at once and never fails.
    """

    def __init__(
        self,
        api: ApiServer,
        node: str,
        *,
        labels: Mapping[str, str] | None = None,
        recycle: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access = api.access
        self._labels = labels or {}
        self._wake = asyncio.Event()
        self._facts: Facts | None = None
        self.watch = PodWatch(api, node, changed=self._wake.set, clock=clock)
        self.notices = Notices(api, node, self.watch.store, elapsed=clock)
        self.node = NodeKeeper(api, node, changed=self._wake.set, elapsed=clock)
        self.pods = PodKeeper(api, self.watch.store, self.notices, recycle=recycle, clock=clock)
        self.writer = Writer(clock=clock)

    def condition(self, condition: Condition) -> None:
        """A condition of the node is this from now on."""
        self.node.condition(condition)
        self._wake.set()

    def event(self, event: Happening) -> None:
        """This happened to the node."""
        self._say(None, event)

    def pod_event(self, pod: PodUID, event: Happening) -> None:
        """This happened to a pod, by the UID that the kubelet knows."""
        self._say(pod, event)

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        """The journal has it that `pod` has `gpus`: its annotations are compared with it soon."""
        log.debug("%s has %s", pod, ", ".join(gpu.uuid for gpu in gpus))
        self._wake.set()

    def pod_name(self, pod: PodUID) -> str | None:
        """Namespace and name of a pod of this node, by the kubelet's UID, where they are known."""
        known = self.watch.store.get(pod)
        return None if known is None else known.full_name

    async def run(self, facts: Callable[[], Facts]) -> None:
        """For as long as the task lives. facts: asked before each round."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch.run())
            group.create_task(
                self.writer.run(lambda: self._tasks(facts()), self._wake, ROUND_SECONDS)
            )

    def _holders(self, gpu: GpuUUID) -> tuple[PodUID, ...]:
        journal = self._facts.allocations if self._facts else ()
        holders = (one.pod.uid for one in journal if one.pod is not None and gpu in one.gpus)
        return tuple(dict.fromkeys(holders))

    def _say_unhealthy(self, gpu: GpuUUID, *, once: bool) -> None:
        """once: the agent has just begun to look, and may have said so before."""
        message = f"{gpu} is out of use: this pod keeps it, and its work there may fail"
        for pod in self._holders(gpu):
            self.notices.say(pod, warning=True, reason="GpuUnhealthy", message=message, once=once)

    def _say(self, pod: PodUID | None, event: Happening) -> None:
        self.notices.say(pod, warning=event.warning, reason=event.reason, message=event.message)
        self._wake.set()

    def _tasks(self, facts: Facts) -> Iterator[Task]:
        before, self._facts = self._facts, facts
        for gpu in facts.unhealthy - (before.unhealthy if before else frozenset()):
            self._say_unhealthy(gpu, once=before is None)
        labels = node_labels(facts.topology.gpus, facts.software, self._labels)
        yield from self.node.tasks(labels, inventory(facts.topology, facts.unhealthy))
        yield from self.pods.tasks(facts.allocations, facts.topology)
        yield from self.notices.tasks()
