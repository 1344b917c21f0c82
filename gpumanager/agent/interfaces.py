"""The interfaces of one node: device plugins always, claims where they are asked for.

A node that had claims keeps serving them until their pods have ended, whatever it offers now.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from gpumanager.agent.monitoring import Monitoring
from gpumanager.agent.moves import ALL_GPUS, GpuMoves
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.dra import wire
from gpumanager.dra.cluster import ClaimCluster
from gpumanager.dra.driver import ClaimDriver, ClaimRef
from gpumanager.dra.health import HealthService
from gpumanager.dra.plan import REASONS
from gpumanager.dra.plugin import ClaimPlugin, PluginSockets
from gpumanager.dra.publisher import SlicePublisher
from gpumanager.dra.reconciler import PASS_SECONDS, ClaimReconciler
from gpumanager.dra.slice import NodeGpus
from gpumanager.errors import InputError
from gpumanager.gpu.device_attributes import KnownAttributes
from gpumanager.gpu.discovery import DeviceDiscovery, joined
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Claimant, ClaimSource, Grant
from gpumanager.grants.node import Node
from gpumanager.grants.offers import OfferFile, offered_by
from gpumanager.grpc_wire import PluginStanding
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.cdi import CdiFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.claims import device_name
from gpumanager.kubelet.pod_resources import PodResources
from gpumanager.kubelet.pods import PodsSource
from gpumanager.legacy.checkpoint import FILE_NAME, inherited_grants
from gpumanager.names import CLAIM_DRIVER, CLAIMS, DEVICE_PLUGINS, KUBELET_CHECKPOINT
from gpumanager.node_status.service import Cluster, NodeCluster
from gpumanager.node_status.wishes import NodeWishes
from gpumanager.runtime.cdi_support import obstacle_of
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.runtime.processes import Containers, GpuTenants
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Start, Supervisor
from gpumanager.volume.values import DriverVolumes

log = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 10.0
"""Between two reconciliations, or less by --allocation-check-period."""
LISTENING_SECONDS: Final = 0.1
"""Between two looks at whether the kubelet can be answered, or there is nothing to offer."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What an agent is started with: what it talks to, and the driver's mirrors."""

    settings: AgentSettings
    cluster: Cluster
    pods: PodsSource
    runtime: ContainerRuntime
    nvml: NvmlService
    search: DeviceDiscovery
    volumes: DriverVolumes
    monitoring: Monitoring
    supervisor: Supervisor


class ClaimInterface:
    """Claims of one node: driver, plugin, slice and reconciler.

    cause: why a GPU is out of use. judged: set once that is known.
    """

    def __init__(
        self,
        node: Node,
        outside: Outside,
        cluster: NodeCluster,
        *,
        isolation: Isolations,
        tenants: GpuTenants,
        cause: Callable[[GpuUUID], str],
        judged: asyncio.Event,
    ) -> None:
        settings, name = outside.settings, cluster.node_name
        self._node, self._outside = node, outside
        self.cluster = ClaimCluster(cluster.api, name)
        cdi = CdiFiles(settings.cdi_path)
        self.driver = ClaimDriver(
            node, isolation=isolation, claims=self.cluster, cdi=cdi, pool=name
        )
        health = HealthService(node, name, cause)
        latencies = outside.monitoring.latencies
        latencies.expect((wire.PREPARE.name, wire.UNPREPARE.name), (CLAIM_DRIVER,), REASONS)
        self.plugin = ClaimPlugin(
            self.driver,
            health,
            PluginSockets.under(settings.plugins_path, settings.plugins_registry_path),
            timer=latencies,
            obstacle=partial(obstacle_of, outside.runtime, settings.cdi_path),
            refused=self._remember_refusal,
            supervisor=outside.supervisor,
        )
        self._attributes = KnownAttributes(outside.nvml, settings.driver_root / "sys")
        self.publisher = SlicePublisher(cluster.api, name, self._node_gpus, judged=judged)
        self.reconciler = ClaimReconciler(
            self.driver,
            self.cluster,
            kubelet_devices=PodResources(settings.pod_resources_socket).cdi_devices,
            runtime=outside.runtime,
            isolation=isolation,
            tenants=tenants.pods,
        )
        node.subscribe(self.publisher.changed)
        node.subscribe(health.changed)
        self.first: dict[str, Start] = {"claims": self.cluster.run, "ResourceSlice": self._publish}
        period = min(PASS_SECONDS, settings.allocation_check_period)
        self.tasks: dict[str, Start] = {
            "claim reconciler": partial(self.reconciler.reconcile_every, period)
        }

    def in_use(self) -> frozenset[GpuUUID]:
        """Return the GPUs that pods have by claims, or may be about to get: all of them while the
        API server does not answer."""
        if not (self.cluster.current and self.publisher.informer.current):
            return frozenset(gpu.uuid for gpu in self._node.topology.gpus)
        granted = (gpu for one in self.driver.live() if one.counts for gpu in one.gpus)
        published = self._named(self.publisher.published.devices())
        return self.allocated() | published | frozenset(granted)

    def allocated(self) -> frozenset[GpuUUID]:
        """Return the GPUs that the scheduler has given to claims."""
        return self._named(self.cluster.devices())

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
            self._outside.settings.unhealthy_taint,
            node.cordoned if node.cordon_known else None,
        )

    async def _publish(self) -> None:
        """Publish the slice once the kubelet can be answered: before, pods would come that cannot
        start."""
        await self._attributes.of(self._node.topology)
        await until_answerable(self._node, self.plugin.listening)
        self.publisher.changed()
        await self.publisher.run()

    def _remember_refusal(self, claim: ClaimRef, text: str) -> None:
        """Keep a refusal for `explain`: one for each pod of the claim, or one where they are not
        known."""
        users = self.cluster.containers(claim.uid, claim.name)
        for one in {one.uid: one for one in users}.values() or (None,):
            name = f"{claim.namespace}/{claim.name}"
            self._outside.monitoring.latencies.events.claim_refused(one, name, text)


async def until_answerable(node: Node, listening: asyncio.Event) -> None:
    """Wait until the kubelet can ask for what the slice offers, or the slice would offer nothing.

    Example: a node whose runtime ignores CDI goes back to device plugins; its slice has to be seen
    without devices before they may have them.
    """
    while not listening.is_set():
        kept = node.leaving.union(node.closed(CLAIMS))
        if all(gpu.uuid in kept for gpu in node.topology.gpus):
            return
        await asyncio.sleep(LISTENING_SECONDS)


class Interfaces:
    """One node's plugins, and the tasks beside them.

    cause: why a GPU is out of use. judged: set once that is known of all of them. Raises InputError
    where claims are asked for and there is no API server.
    """

    def __init__(
        self,
        node: Node,
        outside: Outside,
        *,
        isolation: Isolations,
        containers: Containers,
        cause: Callable[[GpuUUID], str],
        judged: asyncio.Event,
    ) -> None:
        settings, cluster = outside.settings, outside.cluster
        latencies, tenants = outside.monitoring.latencies, GpuTenants(outside.nvml, containers)
        deps = Dependencies(
            isolation=isolation,
            books=DeviceCheckpoint(settings.device_plugin_path / KUBELET_CHECKPOINT),
            pods=outside.pods,
            runtime=outside.runtime,
            tenants=tenants.pods,
            annotate=cluster.correct,
            inherited=partial(inherited_grants, settings.checkpoint_path / FILE_NAME),
            events=latencies.events,
            claim_of=self._claim_of,
            share_mode=settings.share_mode,
            gpu_policy=settings.gpu_policy,
            skipped=outside.supervisor.skipped,
        )
        self.node, self._search = node, outside.search
        self.allocator = Allocator(node, deps)
        by_cdi = partial(obstacle_of, outside.runtime, settings.cdi_path)
        self.device_plugin = DevicePlugin(
            self.allocator,
            settings.device_plugin_path,
            obstacle=by_cdi if settings.device_plugin_cdi else None,
            supervisor=outside.supervisor,
            timer=latencies,
        )
        self.allocator.on_devices_changed = self.device_plugin.refresh
        self.claims: ClaimInterface | None = None
        self._interface = settings.interface
        self._plugins: tuple[DevicePlugin | ClaimPlugin, ...] = (self.device_plugin,)
        self._started: list[DevicePlugin | ClaimPlugin] = []
        self.first: dict[str, Start] = {}
        """What goes on from before the kubelet knows of the agent."""
        period = min(RECONCILE_SECONDS, settings.allocation_check_period)
        self.tasks: dict[str, Start] = {
            "reconciler": partial(self.allocator.reconcile_every, period)
        }
        """What goes on from then."""
        file, wants = OfferFile(settings.checkpoint_path), settings.interface != DEVICE_PLUGINS
        if not (wants or file.read() or CdiFiles(settings.cdi_path).grants()):
            return
        if not isinstance(cluster, NodeCluster):
            cause_of = "remove --standalone" if settings.standalone else "see --kubeconfig"
            if wants:
                flag = f"--interface={settings.interface}"
                raise InputError(flag, f"claims need the API server: {cause_of}")
            log.error("cannot serve claims that this node may still have: %s", cause_of)
            return
        self.claims = ClaimInterface(
            *(node, outside, cluster),
            isolation=isolation,
            tenants=tenants,
            cause=cause,
            judged=judged,
        )
        self._plugins = (self.claims.plugin, self.device_plugin)
        self.first = self.claims.first
        fixed = {DEVICE_PLUGINS: 0, CLAIMS: ALL_GPUS}.get(settings.interface)
        claims_gpus = settings.claims_gpus if fixed is None else fixed
        wishes = NodeWishes(claims_gpus, node.cordon, fixed=fixed is not None)
        cluster.node_changed.append(wishes.read)
        self._moves = GpuMoves(
            node,
            self.allocator,
            self.claims,
            file=file,
            claims_gpus=lambda: wishes.claims_gpus,
            quiet=settings.gpu_move_delay,
            refresh=self.refresh,
        )
        self.tasks |= {**self.claims.tasks, "GPUs between interfaces": self._moves.move_for_ever}

    @property
    def standings(self) -> list[PluginStanding]:
        """How each resource and driver stands with the kubelet. A node that has claims no more, and
        is to have none, leaves out their driver."""
        plugins, node = self._plugins, self.node
        if (
            self.claims
            and self._interface == DEVICE_PLUGINS
            and node.recovered
            and not offered_by(node.offers, CLAIMS)
            and not self.claims.in_use()
        ):
            plugins = (self.device_plugin,)
        return [one for plugin in plugins for one in plugin.standings]

    def owners(self, allocation: AllocationID) -> Collection[PodUID]:
        """Return the pods that an allocation is for, as far as known."""
        grant = self.node.journal.get(allocation)
        if grant is not None and isinstance(grant.source, ClaimSource):
            return self.claims.cluster.users(grant.source.uid) if self.claims else ()
        pod = self.node.journal.confirmed(allocation)
        return () if pod is None else (pod.uid,)

    def users(self, grant: Grant) -> tuple[Claimant, ...]:
        """Return the containers that a grant is for; a claim may have several, of several pods."""
        source = grant.source
        if isinstance(source, ClaimSource):
            own = source.uid, source.name, source.requests
            return self.claims.cluster.containers(*own) if self.claims else ()
        return () if grant.pod is None else (grant.pod,)

    def _claim_of(self, container: Claimant) -> ClaimSource | None:
        """Return a claim prepared on this node that a container uses, as far as known."""
        own = container.uid, container.container
        for grant in self.node.grants(CLAIMS):
            users = ((user.uid, user.container) for user in self.users(grant))
            if isinstance(grant.source, ClaimSource) and own in users:
                return grant.source
        return None

    def offers(self) -> Mapping[GpuUUID, str]:
        """Return which interface has which GPU."""
        if self.claims:
            return {gpu: one.interface for gpu, one in self.node.offers.items()}
        return {gpu.uuid: DEVICE_PLUGINS for gpu in self.node.topology.gpus}

    async def take_up(self) -> None:
        """Load every grant in force. Device plugins first: they find what the journal has lost
        among running containers."""
        await self.allocator.take_up()
        if self.claims:
            await self.claims.driver.load()
            await self._moves.begin()
            if self._interface == CLAIMS and not offered_by(self.node.offers, DEVICE_PLUGINS):
                self._plugins = (self.claims.plugin,)
        self.node.taken_up.set()

    async def serve_again(self) -> None:
        """Enforce every grant in force again, of both interfaces."""
        await (self.claims.driver if self.claims else self.allocator).serve_again()

    async def unhealthy(self, gpus: frozenset[GpuUUID]) -> None:
        """Close what is out of use, and tell the kubelet."""
        self.node.mark_unhealthy(gpus)
        await self.refresh()

    async def appeared(self, _gpus: frozenset[GpuUUID]) -> None:
        """Use what the driver lists now, asked for anew. Raises IndistinctGPUs."""
        found = joined(self.node.topology, await self._search.look())
        await (self.claims.driver if self.claims else self.node).adopt(found)
        await self.refresh()

    async def start(self) -> None:
        """Start the plugins; before `take_up` claims alone, whose calls wait for it: the journal
        may be another agent's, which is about to hand over, and whose device plugins still
        answer."""
        for plugin in self._plugins:
            waits = plugin is not self.device_plugin
            if plugin not in self._started and (waits or self.node.recovered):
                self._started.append(plugin)
                await plugin.start()

    async def served(self, within: float) -> None:
        """Wait until all listen. Raises what keeps one from it."""
        await asyncio.gather(*(plugin.served(within) for plugin in self._started))

    async def registered(self, within: float) -> None:
        """Wait until all are registered; raises what kept one from it after `within` seconds."""
        await asyncio.gather(*(plugin.registered(within) for plugin in self._started))

    def register_anew(self) -> None:
        for plugin in self._plugins:
            plugin.register_anew()

    async def refresh(self) -> None:
        """Tell the kubelet and the API server what is offered now."""
        for plugin in self._plugins:
            await plugin.refresh()

    async def stop(self) -> None:
        for plugin in self._plugins:
            await plugin.stop()
