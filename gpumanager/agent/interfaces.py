"""The interfaces of the node agent, each put together from its parts."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from gpumanager.agent.both import ALL, BothInterfaces, MovePolicy
from gpumanager.agent.interface import NodeInterface
from gpumanager.agent.monitoring import Monitoring
from gpumanager.agent.parts import Outside, dependencies
from gpumanager.agent.timed_allocator import TimedAllocator
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.errors import InputError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import ClaimSource
from gpumanager.grants.offers import CLAIMS, DEVICE_PLUGINS, OfferFile
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.cdi import CdiFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.access import NoAccess, find_access, node_name
from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer
from gpumanager.node_status.claims_target import ClaimsTarget
from gpumanager.runtime.cdi_support import obstacle_of
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Supervisor

if TYPE_CHECKING:
    from gpumanager.dra.driver import ClaimDriver

log = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 10.0
"""Between two looks at everybody's books, or less by --allocation-check-period."""
LISTENING_SECONDS: Final = 0.5
"""Between two looks at whether there is anything to offer once the kubelet could be answered."""


def node_interface(
    settings: AgentSettings,
    outside: Outside,
    topology: Topology,
    *,
    isolation: Isolations,
    containers: Containers,
    monitoring: Monitoring,
    supervisor: Supervisor,
    cause: Callable[[GpuUUID], str],
    judged: asyncio.Event,
) -> NodeInterface:
    """What `settings` say, and what pods still have of the other interface.

    cause: why a GPU is out of use. judged: set once that is known of all of them. Raises NoAccess
    and InputError where claims are asked for and there is no API server.
    """
    if settings.standalone and settings.interface != DEVICE_PLUGINS:
        flag = f"--interface={settings.interface}"
        raise InputError(flag, "claims need the API server: remove --standalone")
    journal, skipped = monitoring.journal, supervisor.skipped
    deps = dependencies(settings, outside, isolation, containers, journal, skipped=skipped)
    allocator = TimedAllocator(topology, deps, monitoring.latencies)
    by_cdi = partial(obstacle_of, outside.runtime, settings.cdi_path)
    obstacle = by_cdi if settings.device_plugin_cdi else None
    devices = device_plugins(settings, allocator, supervisor, obstacle)
    file = OfferFile(settings.checkpoint_path)
    if settings.interface == DEVICE_PLUGINS and not _had_claims(settings, file):
        return devices
    api, node = KubeClient(find_access(settings.kubeconfig)), node_name(settings.hostname_override)
    claimed = claims(
        settings,
        outside,
        topology,
        isolation=isolation,
        containers=containers,
        monitoring=monitoring,
        supervisor=supervisor,
        cause=cause,
        judged=judged,
        beside=allocator.store,
        api=api,
    )
    first, counts = dict(claimed.first), {DEVICE_PLUGINS: 0, CLAIMS: ALL}
    target = ClaimsTarget(node, settings.claims_gpus)
    if settings.interface in counts:
        target.gpus = counts[settings.interface]
    else:
        informer = Informer(api, target, fields=f"metadata.name={node}", cached=True)
        first["GPUs for claims"] = informer.run
    interface = CLAIMS if settings.interface == CLAIMS else DEVICE_PLUGINS
    policy = MovePolicy(interface, lambda: target.gpus, settings.move_after)
    both = BothInterfaces(devices, claimed, allocator.store, file=file, policy=policy)
    return NodeInterface(
        both,
        both,
        both.owners,
        users=claimed.users,
        slice_writes=claimed.slice_writes,
        disagreements=devices.disagreements,
        tasks={**devices.tasks, **claimed.tasks, "GPUs between interfaces": both.move_for_ever},
        first=first,
        released=claimed.released,
        drain=claimed.drain,
        close=claimed.close,
        offers=lambda: {gpu: one.interface for gpu, one in both.offers.items()},
        withheld=devices.withheld,
    )


def _had_claims(settings: AgentSettings, file: OfferFile) -> bool:
    """Whether claims may still have to be served here, and an API server knows of them."""
    if not file.read() and not CdiFiles(settings.cdi_path).grants():
        return False
    try:
        find_access(settings.kubeconfig)
    except NoAccess as error:
        log.error("cannot serve claims that this node may still have: %s", error)  # noqa: TRY400
        return False
    return not settings.standalone


def device_plugins(
    settings: AgentSettings,
    allocator: TimedAllocator,
    supervisor: Supervisor,
    obstacle: Callable[[], Awaitable[str]] | None = None,
) -> NodeInterface:
    """Two extended resources. obstacle: why the kubelet may not know of them yet."""
    plugin = DevicePlugin(
        allocator, settings.device_plugin_path, obstacle=obstacle, supervisor=supervisor
    )
    allocator.on_devices_changed = plugin.refresh
    period = min(RECONCILE_SECONDS, settings.allocation_check_period)

    def owners(allocation: AllocationID) -> Collection[PodUID]:
        pod = allocator.journal.confirmed_pod(allocation)
        return () if pod is None else (pod,)

    return NodeInterface(
        allocator,
        plugin,
        owners,
        disagreements=lambda: allocator.disagreements,
        tasks={"reconciler": partial(allocator.reconcile_every, period)},
        offers=lambda: {gpu.uuid: DEVICE_PLUGINS for gpu in allocator.topology.gpus},
        withheld=lambda: allocator.withheld,
        offer=allocator.offer,
        in_use=allocator.in_use,
        release_ended=allocator.release_ended,
        arriving=allocator.arriving,
    )


def claims(
    settings: AgentSettings,
    outside: Outside,
    topology: Topology,
    *,
    isolation: Isolations,
    containers: Containers,
    monitoring: Monitoring,
    supervisor: Supervisor,
    cause: Callable[[GpuUUID], str],
    judged: asyncio.Event,
    beside: GrantStore,
    api: KubeClient,
) -> NodeInterface:
    """ResourceClaims, by a DRA driver. cause: why a GPU is out of use. judged: whether that is
    known. beside: of device plugins. api: closed in the end."""
    from gpumanager.agent.claim_users import ClaimUsers
    from gpumanager.dra import wire
    from gpumanager.dra.claim import DRIVER, device_name
    from gpumanager.dra.cluster import ClaimCluster
    from gpumanager.dra.driver import ClaimDependencies, ClaimDriver
    from gpumanager.dra.health import HealthService
    from gpumanager.dra.plan import REASONS
    from gpumanager.dra.plugin import ClaimPlugin, PluginSockets
    from gpumanager.dra.publisher import SlicePublisher
    from gpumanager.dra.slice import NodeGpus
    from gpumanager.gpu.device_attributes import KnownAttributes
    from gpumanager.gpu.usage.process_memory import NvmlMeter
    from gpumanager.kubelet.pod_resources import PodResources
    from gpumanager.recovery.claim_reconciler import PASS_SECONDS, ClaimReconciler
    from gpumanager.runtime.tenants import GpuTenants

    node = node_name(settings.hostname_override)
    cluster = ClaimCluster(api, node)
    cdi = CdiFiles(settings.cdi_path)
    driver = ClaimDriver(
        topology,
        ClaimDependencies(isolation, monitoring.journal, cluster, cdi, node, beside=beside),
    )
    health = HealthService(driver, node, cause)
    sockets = PluginSockets.under(settings.plugins_path, settings.plugins_registry_path)
    monitoring.latencies.expect((wire.PREPARE.name, wire.UNPREPARE.name), (DRIVER,), REASONS)
    users = ClaimUsers(cluster, monitoring.latencies.admissions)
    plugin = ClaimPlugin(
        driver,
        health,
        sockets,
        timer=monitoring.latencies,
        obstacle=partial(obstacle_of, outside.runtime, settings.cdi_path),
        refused=users.refused,
        supervisor=supervisor,
    )
    known = KnownAttributes(settings.driver_root / "sys")

    async def gpus() -> NodeGpus:
        attributes = await known.of(driver.topology)
        # Where the runtime has lost CDI, pods that came would wait for the driver.
        unusable = (gpu.uuid for gpu in driver.topology.gpus if plugin.hindered)
        return NodeGpus(
            driver.topology,
            driver.ledger.unheld(driver.live()),
            driver.unhealthy,
            driver.leaving.union(driver.withheld(), unusable),
            outside.volumes.version,
            attributes,
            settings.unhealthy_taint,
        )

    publisher = SlicePublisher(api, node, gpus, judged=judged)

    async def publish() -> None:
        """Not before the kubelet could be answered: pods would come that cannot start."""
        await known.of(driver.topology)
        await until_answerable(driver, plugin.listening)
        publisher.changed()
        await publisher.run()

    def changed() -> None:
        publisher.changed()
        health.changed()

    def owners(allocation: AllocationID) -> Collection[PodUID]:
        grant = driver.journal.get(allocation)
        return (
            cluster.users(grant.source.uid)
            if grant and isinstance(grant.source, ClaimSource)
            else ()
        )

    reconciler = ClaimReconciler(
        driver,
        cluster,
        kubelet=PodResources(settings.pod_resources_socket),
        runtime=outside.runtime,
        usages=isolation,
        tenants=GpuTenants(NvmlMeter(), containers),
    )

    def named(devices: Collection[str]) -> frozenset[GpuUUID]:
        gpus = (gpu.uuid for gpu in driver.topology.gpus)
        return frozenset(gpu for gpu in gpus if device_name(gpu) in devices)

    def allocated() -> frozenset[GpuUUID]:
        return named(cluster.claims.devices())

    def in_use() -> frozenset[GpuUUID]:
        """All of them while the API server does not tell."""
        if not (cluster.current and publisher.informer.current):
            return frozenset(gpu.uuid for gpu in driver.topology.gpus)
        granted = (gpu for one in driver.live() if one.counts for gpu in one.gpus)
        return allocated() | named(publisher.published.devices()) | frozenset(granted)

    driver.on_change = changed
    return NodeInterface(
        driver,
        plugin,
        owners,
        users=users.of,
        slice_writes=lambda: publisher.writes,
        tasks={
            "claim reconciler": partial(
                reconciler.reconcile_every, min(PASS_SECONDS, settings.allocation_check_period)
            )
        },
        first={"claims": cluster.run, "ResourceSlice": publish},
        released=lambda: reconciler.released,
        drain=plugin.drain,
        close=api.close,
        offer=driver.offer,
        in_use=in_use,
        allocated=allocated,
    )


async def until_answerable(driver: "ClaimDriver", listening: asyncio.Event) -> None:
    """Until the kubelet can ask for what the slice offers, or there is nothing that it would offer.

    Example: a node whose runtime ignores CDI goes back to device plugins; its slice has to be seen
    without devices before they may have them.
    """
    while not listening.is_set():
        kept = driver.leaving.union(driver.withheld())
        if all(gpu.uuid in kept for gpu in driver.topology.gpus):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTENING_SECONDS):
                await listening.wait()
