"""The node agent, put together: the one place where its parts meet.

In the order of its start: what the user gave, GPUs by NVML, driver directories, journal, device
plugin. What only waits for the outside (the kubelet, the API server, the driver's events) waits in
the background. What the kubelet does not wait for begins when it knows of us: the sockets of what
runs already come first.
"""

import asyncio
import logging
import resource
import signal
from collections.abc import Collection
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from gpumanager.cli.node.cleanup import PRUNE_SECONDS, prune_every
from gpumanager.cli.node.gpu_health import Kubelet, health_watch
from gpumanager.cli.node.interface import Granter, NodeInterface
from gpumanager.cli.node.interfaces import node_interface
from gpumanager.cli.node.monitoring import Monitored, Monitoring
from gpumanager.cli.node.parts import (
    Outside,
    container_runtime,
    join_cluster,
    lead_to_nvml,
    load_driver,
    publish_driver,
)
from gpumanager.cli.node.startup import registered_or_late, unless
from gpumanager.cli.node.state_lock import lock_state
from gpumanager.gpu.discovery import DeviceDiscovery
from gpumanager.gpu.driver_version import cuda_version
from gpumanager.gpu.tree import render_tree
from gpumanager.gpu.usage.process_memory import NvmlMeter
from gpumanager.gpu.usage.utilization import NvmlUtilization
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import Claimant, ClaimSource
from gpumanager.isolation.edits import DeviceFiles
from gpumanager.isolation.protocol import Means
from gpumanager.isolation.table import Isolations
from gpumanager.kube.pod import PodUID
from gpumanager.kubelet.pods import KubeletPods
from gpumanager.kubelet.pods_api import PodsApi, PreferredPods
from gpumanager.node.join import Cluster, Standalone
from gpumanager.node.labels import Software
from gpumanager.node.service import Facts
from gpumanager.recovery.legacy_containers import legacy_containers
from gpumanager.runtime.cgroup_files import CgroupFiles
from gpumanager.runtime.named import NamedContainers
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Start, Supervisor
from gpumanager.virtual.manager import VirtualManager
from gpumanager.virtual.sharing import TICK_SECONDS
from gpumanager.virtual.values import AllocationID
from gpumanager.volume.config import SHIPPED, read_config

log = logging.getLogger(__name__)

MEASURE_SECONDS: Final = 1.0
"""How often what drivers take by themselves is measured."""
ORIGINALS_SECONDS: Final = 1.0
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises GpuManagerError where it cannot start."""
    config = read_config(settings.volume_config or SHIPPED)
    cluster, runtime = join_cluster(settings), container_runtime(settings)
    http = KubeletPods(settings.kubelet_endpoint, token=settings.kubelet_token)
    pods_api = PodsApi(settings.pods_api_socket)
    stopping = _stop_on_signals()
    allow_many_files()
    async with AsyncExitStack() as closing:
        closing.push_async_callback(runtime.close)
        closing.push_async_callback(pods_api.close)
        lock = await unless(stopping, lock_state(settings.checkpoint_path))
        if lock is None:
            return
        closing.enter_context(lock)
        lead_to_nvml(settings.driver_root)
        search = DeviceDiscovery.here(settings.driver_root / "sys", settings.reserved_memory)
        supervisor = Supervisor()
        monitoring = Monitoring(settings, supervisor, lambda: search.missing, cluster)
        closing.push_async_callback(supervisor.stop)
        supervisor.keep("monitoring", monitoring.run)
        await asyncio.to_thread(load_driver, settings)
        topology = await unless(stopping, search.first())
        if topology is None:
            return
        log.info("GPUs of this node:\n%s", render_tree(topology))
        volumes = await asyncio.to_thread(publish_driver, settings, config)
        outside = Outside(cluster, PreferredPods(pods_api, http), runtime, search, volumes)
        agent = NodeAgent(settings, outside, topology, monitoring, supervisor)
        closing.push_async_callback(agent.stop)
        await agent.run(stopping)


class NodeAgent:
    """All parts of one agent, on a node whose GPUs are known."""

    def __init__(
        self,
        settings: AgentSettings,
        outside: Outside,
        topology: Topology,
        monitoring: Monitoring,
        supervisor: Supervisor,
    ) -> None:
        self._settings = settings
        self._outside = outside
        self._supervisor = supervisor
        self._containers = Containers(CgroupFiles.here())
        self._peers = PodCheck(self._containers, self._owners)
        self._virtual = self._sockets()
        isolation = Isolations(
            Means(self._virtual, outside.volumes),
            DeviceFiles(settings.device_directory, extra=settings.extra_devices),
        )
        self._interface = node_interface(
            settings,
            outside,
            topology,
            isolation=isolation,
            containers=self._containers,
            monitoring=monitoring,
            supervisor=supervisor,
            cause=self._cause,
        )
        self._granter, self._plugin = self._interface.granter, self._interface.plugin
        self._parts = Monitored(
            self._interface,
            isolation,
            self._peers,
            self._containers,
            outside.cluster.pod_name,
        )
        monitoring.look_at(self._parts)

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set. Raises what keeps the agent from listening."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._plugin.register_anew)
        self._supervisor.keep("runtime version", self._outside.runtime.say_who)
        await self._granter.take_up()
        for name, start in self._interface.first.items():
            self._supervisor.keep(name, start)
        await self._plugin.start()
        self._supervisor.keep("start", self._begin)
        await unless(stopping, self._plugin.served(self._settings.wait_timeout))
        await stopping.wait()

    async def stop(self) -> None:
        await self._supervisor.stop()
        await self._plugin.stop()
        await self._virtual.stop()
        await self._interface.close()

    async def _begin(self) -> None:
        """All background tasks, once the journal is read and the kubelet knows of us."""
        await registered_or_late(self._plugin)
        await self._granter.serve_again()
        await self._virtual.remove_spares()
        around, granter, virtual = self._outside, self._granter, self._virtual
        health = health_watch(self._settings, granter, around.cluster)
        self._parts.health = health
        tasks: dict[str, Start] = {
            "measuring": partial(virtual.measure_every, MEASURE_SECONDS),
            "sharing": partial(virtual.share_every, TICK_SECONDS),
            **self._interface.tasks,
            "gpu-manager's containers": partial(follow_originals, virtual, granter),
            "health": partial(health.watch, Kubelet(granter, self._plugin, around.search)),
            "cluster": partial(tell, around.cluster, self._interface, around.volumes.version),
            "driver directories": partial(
                prune_every, PRUNE_SECONDS, around.volumes, around.runtime
            ),
        }
        for name, start in tasks.items():
            self._supervisor.keep(name, start)

    def _owners(self, allocation: AllocationID) -> Collection[PodUID]:
        return self._interface.owners(allocation)

    def _confirmed(self, allocation: AllocationID) -> Claimant | None:
        """Of a claim, any number of containers."""
        grant = self._granter.journal.get(allocation)
        claimed = grant is not None and isinstance(grant.source, ClaimSource)
        return None if claimed else self._granter.journal.confirmed(allocation)

    def _cause(self, gpu: GpuUUID) -> str:
        """Why it is out of use; empty where nobody knows."""
        known = self._parts.health.health.of(gpu) if self._parts.health else None
        return known.cause.text if known and known.cause else ""

    def _model_of(self, uuid: GpuUUID) -> str | None:
        gpu = self._granter.topology.by_uuid(uuid)
        return gpu.model if gpu else None

    def _sockets(self) -> VirtualManager:
        return VirtualManager(
            self._settings.virtual_manager_path,
            meter=NvmlMeter(),
            utilization=NvmlUtilization(),
            model_of=self._model_of,
            peers=self._peers,
            resident=self._confirmed,
            neighbours=self._containers,
            names=NamedContainers(self._containers, self._outside.runtime),
            driver=self._outside.volumes.version,
            switch_us=self._settings.gpu_switch_cost,
            pauses=self._settings.behind_the_shim == "pause",
        )


async def tell(cluster: Cluster, interface: NodeInterface, driver: str) -> None:
    """What the API server is told of this node, for as long as the task lives."""
    if isinstance(cluster, Standalone):
        return
    software, granter = Software(driver, await cuda_version()), interface.granter
    await cluster.run(
        lambda: Facts(
            granter.topology,
            granter.journal.live(),
            software,
            granter.unhealthy,
            interface.withheld(),
        )
    )


async def follow_originals(virtual: VirtualManager, granter: Granter) -> None:
    """Keep pods going that began under gpu-manager, until cancelled."""
    while True:
        virtual.serve_originals(legacy_containers(granter.journal, virtual.original_candidates()))
        await asyncio.sleep(ORIGINALS_SECONDS)


def allow_many_files() -> None:
    """Three descriptors for each allocation and one for each process: use all the system grants."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _stop_on_signals() -> asyncio.Event:
    stopping = asyncio.Event()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to register again
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
