"""The interfaces of the node agent, each put together from its parts."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from gpumanager.cli.node.interface import NodeInterface
from gpumanager.cli.node.monitoring import Monitoring
from gpumanager.cli.node.parts import Outside, dependencies
from gpumanager.cli.node.timed_allocator import TimedAllocator
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.errors import InputError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import ClaimSource
from gpumanager.isolation.table import Isolations
from gpumanager.kube.access import find_access, node_name
from gpumanager.kube.pod import PodUID
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Supervisor
from gpumanager.virtual.values import AllocationID

RECONCILE_SECONDS: Final = 10.0
"""Between two looks at everybody's books, or less by --allocation-check-period."""


def device_plugins(
    settings: AgentSettings,
    outside: Outside,
    topology: Topology,
    *,
    isolation: Isolations,
    containers: Containers,
    monitoring: Monitoring,
    supervisor: Supervisor,
) -> NodeInterface:
    """Two extended resources."""
    journal, skipped = monitoring.journal, supervisor.skipped
    deps = dependencies(settings, outside, isolation, containers, journal, skipped=skipped)
    allocator = TimedAllocator(topology, deps, monitoring.latencies)
    plugin = DevicePlugin(allocator, settings.device_plugin_path, supervisor=supervisor)
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
) -> NodeInterface:
    """ResourceClaims, by a DRA driver. cause: why a GPU is out of use.

    Raises NoAccess and InputError where there is no API server.
    """
    if settings.standalone:
        raise InputError("--interface=claims", "claims are in the API server; leave --standalone")
    from gpumanager.cli.node.claim_users import ClaimUsers
    from gpumanager.dra import wire
    from gpumanager.dra.cdi import CdiFiles
    from gpumanager.dra.claim import DRIVER
    from gpumanager.dra.cluster import ClaimCluster
    from gpumanager.dra.driver import ClaimDependencies, ClaimDriver
    from gpumanager.dra.health import HealthService
    from gpumanager.dra.plan import REASONS
    from gpumanager.dra.plugin import ClaimPlugin, PluginSockets
    from gpumanager.dra.publisher import SlicePublisher
    from gpumanager.dra.slice import NodeGpus
    from gpumanager.gpu.device_attributes import DeviceAttributes, device_attributes
    from gpumanager.gpu.usage.process_memory import NvmlMeter
    from gpumanager.kube.client import KubeClient
    from gpumanager.kubelet.pod_resources import PodResources
    from gpumanager.recovery.claim_reconciler import PASS_SECONDS, ClaimReconciler
    from gpumanager.runtime.cdi_support import obstacle_of
    from gpumanager.runtime.tenants import GpuTenants

    api, node = KubeClient(find_access(settings.kubeconfig)), node_name(settings.hostname_override)
    cluster = ClaimCluster(api, node)
    cdi = CdiFiles(settings.cdi_path)
    driver = ClaimDriver(
        topology, ClaimDependencies(isolation, monitoring.journal, cluster, cdi, node)
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
    known = DeviceAttributes()

    def gpus() -> NodeGpus:
        return NodeGpus(
            driver.topology,
            driver.ledger.unheld(driver.live()),
            driver.unhealthy,
            frozenset(driver.withheld()),
            outside.volumes.version,
            known,
            settings.unhealthy_taint,
        )

    publisher = SlicePublisher(api, node, gpus)

    async def publish() -> None:
        """Not before the kubelet could be answered: pods would come that cannot start."""
        nonlocal known
        known = await device_attributes(driver.topology, settings.driver_root / "sys")
        await plugin.listening.wait()
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
    period = min(PASS_SECONDS, settings.allocation_check_period)
    driver.on_change = changed
    first = {"claims": cluster.run, "ResourceSlice": publish}
    return NodeInterface(
        driver,
        plugin,
        owners,
        users=users.of,
        slice_writes=lambda: publisher.writes,
        tasks={"claim reconciler": partial(reconciler.reconcile_every, period)},
        first=first,
        released=lambda: reconciler.released,
        drain=plugin.drain,
        close=api.close,
    )
