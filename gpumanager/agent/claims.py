"""ResourceClaims in the node agent: driver, plugin, slice and reconciler, put together."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from gpumanager.agent.interfaces import Outside
from gpumanager.agent.monitoring import Monitoring
from gpumanager.dra import wire
from gpumanager.dra.cluster import ClaimCluster
from gpumanager.dra.driver import ClaimDependencies, ClaimDriver, ClaimRef
from gpumanager.dra.health import HealthService
from gpumanager.dra.plan import REASONS
from gpumanager.dra.plugin import ClaimPlugin, PluginSockets
from gpumanager.dra.publisher import SlicePublisher
from gpumanager.dra.reconciler import PASS_SECONDS, ClaimReconciler
from gpumanager.dra.slice import NodeGpus
from gpumanager.gpu.device_attributes import KnownAttributes
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Claimant, ClaimSource
from gpumanager.grants.node import Node
from gpumanager.ids import PodUID
from gpumanager.isolation.cdi import CdiFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.claims import device_name
from gpumanager.kube.client import KubeClient
from gpumanager.kubelet.pod_resources import PodResources
from gpumanager.names import CLAIM_DRIVER, CLAIMS
from gpumanager.runtime.cdi_support import obstacle_of
from gpumanager.runtime.processes import Containers, GpuTenants
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Start, Supervisor

LISTENING_SECONDS: Final = 0.5
"""Between two looks at whether there is anything to offer once the kubelet could be answered."""


class ClaimInterface:
    """Claims of one node.

    name: the node's. cause: why a GPU is out of use. judged: set once that is known. api: closed in
    the end.
    """

    def __init__(
        self,
        node: Node,
        name: str,
        settings: AgentSettings,
        outside: Outside,
        *,
        isolation: Isolations,
        containers: Containers,
        monitoring: Monitoring,
        supervisor: Supervisor,
        cause: Callable[[GpuUUID], str],
        judged: asyncio.Event,
        api: KubeClient,
    ) -> None:
        self._node, self._settings, self._outside = node, settings, outside
        self._api = api
        self._events = monitoring.latencies.events
        self._cluster = ClaimCluster(api, name)
        cdi = CdiFiles(settings.cdi_path)
        self.driver = ClaimDriver(node, ClaimDependencies(isolation, self._cluster, cdi, name))
        self._health = HealthService(node, name, cause)
        monitoring.latencies.expect(
            (wire.PREPARE.name, wire.UNPREPARE.name), (CLAIM_DRIVER,), REASONS
        )
        self.plugin = ClaimPlugin(
            self.driver,
            self._health,
            PluginSockets.under(settings.plugins_path, settings.plugins_registry_path),
            timer=monitoring.latencies,
            obstacle=partial(obstacle_of, outside.runtime, settings.cdi_path),
            refused=self._remember_refusal,
            supervisor=supervisor,
        )
        self._attributes = KnownAttributes(outside.nvml, settings.driver_root / "sys")
        self._publisher = SlicePublisher(api, name, self._node_gpus, judged=judged)
        self._reconciler = ClaimReconciler(
            self.driver,
            self._cluster,
            kubelet=PodResources(settings.pod_resources_socket),
            runtime=outside.runtime,
            usages=isolation,
            tenants=GpuTenants(outside.nvml, containers),
        )
        node.subscribe(self._publisher.changed)
        node.subscribe(self._health.changed)
        period = min(PASS_SECONDS, settings.allocation_check_period)
        self.first: dict[str, Start] = {"claims": self._cluster.run, "ResourceSlice": self._publish}
        """What goes on from before the kubelet knows of the agent."""
        self.tasks: dict[str, Start] = {
            "claim reconciler": partial(self._reconciler.reconcile_every, period)
        }
        """What goes on from then."""

    @property
    def slice_writes(self) -> int:
        """How often the node's ResourceSlice was written."""
        return self._publisher.writes

    @property
    def released(self) -> int:
        """Claims so far that the kubelet did not unprepare, and the reconciler released."""
        return self._reconciler.released

    def owners(self, source: ClaimSource) -> Collection[PodUID]:
        """Return the pods that use a claim, as far as known."""
        return self._cluster.users(source.uid)

    def users(self, source: ClaimSource) -> tuple[Claimant, ...]:
        """Return the containers that use a claim; none where the watch has not seen it yet."""
        return self._cluster.containers(source.uid, source.name, source.requests)

    def in_use(self) -> frozenset[GpuUUID]:
        """Return the GPUs that pods have by claims, or may be about to get: all of them while the
        API server does not answer."""
        if not (self._cluster.current and self._publisher.informer.current):
            return frozenset(gpu.uuid for gpu in self._node.topology.gpus)
        granted = (gpu for one in self.driver.live() if one.counts for gpu in one.gpus)
        published = self._named(self._publisher.published.devices())
        return self.allocated() | published | frozenset(granted)

    def allocated(self) -> frozenset[GpuUUID]:
        """Return the GPUs that the scheduler has given to claims."""
        return self._named(self._cluster.claims.devices())

    async def close(self) -> None:
        await self._api.close()

    def _named(self, devices: Collection[str]) -> frozenset[GpuUUID]:
        gpus = (gpu.uuid for gpu in self._node.topology.gpus)
        return frozenset(gpu for gpu in gpus if device_name(gpu) in devices)

    async def _node_gpus(self) -> NodeGpus:
        node = self._node
        # Where the runtime has lost CDI, pods that came would wait for the driver.
        unusable = (gpu.uuid for gpu in node.topology.gpus if self.plugin.hindered)
        return NodeGpus(
            node.topology,
            node.ledger(CLAIMS).unheld(self.driver.live()),
            node.unhealthy,
            node.leaving.union(node.closed(CLAIMS), unusable),
            self._outside.volumes.version,
            await self._attributes.of(node.topology),
            self._settings.unhealthy_taint,
            node.cordoned if node.cordon_known else None,
        )

    async def _publish(self) -> None:
        """Publish the slice once the kubelet can be answered: before, pods would come that cannot
        start."""
        await self._attributes.of(self._node.topology)
        await until_answerable(self._node, self.plugin.listening)
        self._publisher.changed()
        await self._publisher.run()

    def _remember_refusal(self, claim: ClaimRef, text: str) -> None:
        """Keep a refusal for `explain`: one for each pod of the claim, or one where they are not
        known."""
        users = self._cluster.containers(claim.uid, claim.name)
        pods: dict[str, Claimant | None] = {one.uid: one for one in users}
        for one in pods.values() or (None,):
            name = f"{claim.namespace}/{claim.name}"
            self._events.claim_refused(one, name, text)


async def until_answerable(node: Node, listening: asyncio.Event) -> None:
    """Wait until the kubelet can ask for what the slice offers, or the slice would offer nothing.

    Example: a node whose runtime ignores CDI goes back to device plugins; its slice has to be seen
    without devices before they may have them.
    """
    while not listening.is_set():
        kept = node.leaving.union(node.closed(CLAIMS))
        if all(gpu.uuid in kept for gpu in node.topology.gpus):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTENING_SECONDS):
                await listening.wait()
