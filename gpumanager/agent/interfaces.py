"""The interfaces of one node: device plugins always, claims where they are asked for.

A node that had claims keeps serving them until their pods have ended, whatever it offers now.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gpumanager.agent.monitoring import Monitoring
from gpumanager.agent.moves import ALL_GPUS, GpuMoves, MovePolicy
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.errors import InputError
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
from gpumanager.kube.access import NoAccess, find_access, node_name
from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer
from gpumanager.kubelet.pod_resources import PodResources
from gpumanager.kubelet.pods import PodsSource
from gpumanager.legacy.checkpoint import FILE_NAME, inherited_grants
from gpumanager.names import CLAIMS, DEVICE_PLUGINS, KUBELET_CHECKPOINT
from gpumanager.node_status.join import Cluster
from gpumanager.node_status.wishes import NodeWishes
from gpumanager.runtime.cdi_support import obstacle_of
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.runtime.processes import Containers, GpuTenants
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Start, Supervisor
from gpumanager.volume.values import DriverVolumes

if TYPE_CHECKING:
    from gpumanager.agent.claims import ClaimInterface
    from gpumanager.dra.plugin import ClaimPlugin

log = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 10.0
"""Between two reconciliations, or less by --allocation-check-period."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What the agent talks to, and the driver's mirrors."""

    cluster: Cluster
    pods: PodsSource
    runtime: ContainerRuntime
    nvml: NvmlService
    search: DeviceDiscovery
    volumes: DriverVolumes


class Interfaces:
    """One node's plugins, and the tasks beside them.

    cause: why a GPU is out of use. judged: set once that is known of all of them. Raises NoAccess
    and InputError where claims are asked for and there is no API server.
    """

    def __init__(
        self,
        node: Node,
        settings: AgentSettings,
        outside: Outside,
        *,
        isolation: Isolations,
        containers: Containers,
        monitoring: Monitoring,
        supervisor: Supervisor,
        cause: Callable[[GpuUUID], str],
        judged: asyncio.Event,
    ) -> None:
        if settings.standalone and settings.interface != DEVICE_PLUGINS:
            flag = f"--interface={settings.interface}"
            raise InputError(flag, "claims need the API server: remove --standalone")
        latencies = monitoring.latencies
        deps = Dependencies(
            isolation=isolation,
            books=DeviceCheckpoint(
                settings.device_plugin_path / KUBELET_CHECKPOINT,
                PodResources(settings.pod_resources_socket),
            ),
            pods=outside.pods,
            runtime=outside.runtime,
            tenants=GpuTenants(outside.nvml, containers).pods,
            annotate=outside.cluster.correct,
            inherited=partial(inherited_grants, settings.checkpoint_path / FILE_NAME),
            events=latencies.events,
            claim_of=self._claim_of,
            share_mode=settings.share_mode,
            gpu_policy=settings.gpu_policy,
            skipped=supervisor.skipped,
        )
        self.node, self._search = node, outside.search
        self.allocator = Allocator(node, deps)
        by_cdi = partial(obstacle_of, outside.runtime, settings.cdi_path)
        self.device_plugin = DevicePlugin(
            self.allocator,
            settings.device_plugin_path,
            obstacle=by_cdi if settings.device_plugin_cdi else None,
            supervisor=supervisor,
            timer=latencies,
        )
        self.allocator.on_devices_changed = self.device_plugin.refresh
        self.claims: ClaimInterface | None = None
        self._only_claims = settings.interface == CLAIMS
        self._wants_claims = settings.interface != DEVICE_PLUGINS
        self._plugins: tuple[DevicePlugin | ClaimPlugin, ...] = (self.device_plugin,)
        self._started: list[DevicePlugin | ClaimPlugin] = []
        period = min(RECONCILE_SECONDS, settings.allocation_check_period)
        self.first: dict[str, Start] = {}
        """What goes on from before the kubelet knows of the agent."""
        self.tasks: dict[str, Start] = {
            "reconciler": partial(self.allocator.reconcile_every, period)
        }
        """What goes on from then."""
        file = OfferFile(settings.checkpoint_path)
        if not self._wants_claims and not _had_claims(settings, file):
            return
        # Most agents serve no claims, and do not load what that takes.
        from gpumanager.agent import claims

        name = node_name(settings.hostname_override)
        api = KubeClient(find_access(settings.kubeconfig))
        self.claims = claims.ClaimInterface(
            node,
            name,
            settings,
            outside,
            isolation=isolation,
            containers=containers,
            monitoring=monitoring,
            supervisor=supervisor,
            cause=cause,
            judged=judged,
            api=api,
        )
        self._plugins = (self.claims.plugin, self.device_plugin)
        self.first.update(self.claims.first)
        fixed = {DEVICE_PLUGINS: 0, CLAIMS: ALL_GPUS}.get(settings.interface)
        claims_gpus = settings.claims_gpus if fixed is None else fixed
        wishes = NodeWishes(name, claims_gpus, node.cordon, fixed=fixed is not None)
        informer = Informer(api, wishes, fields=f"metadata.name={name}", cached=True)
        self.first["wishes of operators"] = informer.run
        self._moves = GpuMoves(
            node,
            self.allocator,
            self.claims,
            file=file,
            policy=MovePolicy(node.interface, lambda: wishes.claims_gpus, settings.gpu_move_delay),
            refresh=self.refresh,
        )
        self.tasks |= {**self.claims.tasks, "GPUs between interfaces": self._moves.move_for_ever}

    @property
    def standings(self) -> list[PluginStanding]:
        """How each resource and driver stands with the kubelet. A node that has claims no more, and
        is to have none, leaves out their driver."""
        done = not self._wants_claims and self.node.recovered
        if self.claims and done and not offered_by(self.node.offers, CLAIMS):
            plugins = self._plugins if self.claims.in_use() else (self.device_plugin,)
        else:
            plugins = self._plugins
        return [one for plugin in plugins for one in plugin.standings]

    def owners(self, allocation: AllocationID) -> Collection[PodUID]:
        """Return the pods that an allocation is for, as far as known."""
        grant = self.node.journal.get(allocation)
        if grant is not None and isinstance(grant.source, ClaimSource):
            return self.claims.owners(grant.source) if self.claims else ()
        pod = self.node.journal.confirmed_pod(allocation)
        return () if pod is None else (pod,)

    def users(self, grant: Grant) -> tuple[Claimant, ...]:
        """Return the containers that a grant is for; a claim may have several, of several pods."""
        if isinstance(grant.source, ClaimSource):
            return self.claims.users(grant.source) if self.claims else ()
        return () if grant.pod is None else (grant.pod,)

    def _claim_of(self, container: Claimant) -> ClaimSource | None:
        """Return a claim prepared on this node that a container uses, as far as known."""
        own = container.uid, container.container
        for grant in self.node.grants(CLAIMS):
            if any((user.uid, user.container) == own for user in self.users(grant)):
                return grant.source if isinstance(grant.source, ClaimSource) else None
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
            if self._only_claims and not offered_by(self.node.offers, DEVICE_PLUGINS):
                self._plugins = (self.claims.plugin,)
        self.node.taken_up.set()
        if self._started:
            await self.start()

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

    async def drain(self) -> None:
        """Finish what the kubelet asked for, before another agent takes over."""
        if self.claims:
            await self.claims.plugin.drain()

    async def close(self) -> None:
        if self.claims:
            await self.claims.close()


def _had_claims(settings: AgentSettings, file: OfferFile) -> bool:
    """Return whether claims may still have to be served here, and an API server knows of them."""
    if not file.read() and not CdiFiles(settings.cdi_path).grants():
        return False
    try:
        find_access(settings.kubeconfig)
    except NoAccess as error:
        log.error("cannot serve claims that this node may still have: %s", error)  # noqa: TRY400
        return False
    return not settings.standalone
