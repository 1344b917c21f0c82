"""The node agent, put together: the one place where its parts meet.

In the order of its start: what the user gave, GPUs by NVML, driver directories, journal, device
plugin. What only waits for the outside (the kubelet, the API server, the driver's events) waits in
the background. What the kubelet does not wait for begins when it knows of us: the sockets of what
runs already come first.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
from collections.abc import Collection
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Final

from gpumanager.agent.host import (
    PRUNE_SECONDS,
    container_runtime,
    load_driver,
    prune_every,
    publish_driver,
    use_driver_root,
)
from gpumanager.agent.interfaces import Interfaces, Outside
from gpumanager.agent.monitoring import Monitored, Monitoring, registered_or_late
from gpumanager.agent.state_lock import StateOwner, unless, until_asked
from gpumanager.gpu.device_attributes import cuda_version
from gpumanager.gpu.discovery import DeviceDiscovery
from gpumanager.gpu.health.events import NvmlHealth
from gpumanager.gpu.health.prober import ProbeTiming
from gpumanager.gpu.health.state import RecoveryPolicy
from gpumanager.gpu.health.watch import HealthRules, HealthWatch
from gpumanager.gpu.health.xids import checks_of
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.tree import render_tree
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import Claimant, ClaimSource
from gpumanager.grants.node import Node
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.cdi import ALLOCATION, AllocationFiles, CdiFiles
from gpumanager.isolation.edits import DeviceFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.access import NoAccess, find_access, node_name
from gpumanager.kube.client import KubeClient
from gpumanager.kubelet.pods import KubeletPods
from gpumanager.kubelet.pods_api import PodsApi, PreferredPods
from gpumanager.legacy.sockets import LegacySockets, legacy_containers
from gpumanager.limits.manager import TICK_SECONDS, VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.names import CLAIMS, DEVICE_PLUGINS
from gpumanager.node_status.labels import Software
from gpumanager.node_status.manager_watch import ManagerWatch
from gpumanager.node_status.service import Cluster, Facts, NodeCluster, Standalone
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.freezer import READ_ONLY, CgroupFreezer
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Start, Supervisor
from gpumanager.volume.config import SHIPPED, read_config

log = logging.getLogger(__name__)

MEASURE_SECONDS: Final = 1.0
"""How often what drivers take by themselves is measured."""
ORIGINALS_SECONDS: Final = 1.0
CONNECTED_SECONDS: Final = 0.5
"""In which a kubelet connects to an instance that it has taken. Until then it calls the one before,
whose socket must not be gone (1.36, 1.37: it prefers whom it is connected to)."""
FATAL_FACTOR: Final = 4
"""A GPU that needed a reset has to be good for so many times longer."""
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises GpuManagerError where it cannot start."""
    config = read_config(settings.volume_config or SHIPPED)
    cluster = join(settings)
    runtime = container_runtime(settings)
    http = KubeletPods(settings.kubelet_endpoint, token=settings.kubelet_token)
    stopping = asyncio.Event()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to register again
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    allow_many_files()
    async with AsyncExitStack() as closing:
        closing.push_async_callback(runtime.close)
        if isinstance(cluster, NodeCluster):
            closing.push_async_callback(cluster.api.close)
        nvml = NvmlService()
        search = DeviceDiscovery.here(nvml, settings.driver_root / "sys", settings.reserved_memory)
        supervisor = Supervisor()
        monitoring = Monitoring(settings, supervisor, lambda: search.missing, cluster, nvml)
        state = StateOwner(settings, closing.enter_context(ExitStack()), monitoring)
        closing.push_async_callback(supervisor.stop)
        if not state.succeeds and not await state.taken(stopping):
            return
        use_driver_root(settings.driver_root)
        supervisor.keep("monitoring", monitoring.run)
        await asyncio.to_thread(load_driver, settings)
        topology = await unless(stopping, search.first())
        if topology is None:
            return
        log.info("GPUs of this node:\n%s", render_tree(topology))
        volumes = await asyncio.to_thread(publish_driver, settings, config)
        pods_api = PodsApi(settings.pods_api_socket)
        closing.push_async_callback(pods_api.close)
        pods = PreferredPods(pods_api, http)
        outside = Outside(
            *(settings, cluster, pods, runtime, nvml, search, volumes, monitoring, supervisor)
        )
        agent = NodeAgent(outside, topology)
        closing.push_async_callback(agent.stop)
        if state.succeeds:
            await unless(stopping, agent.register())
            if stopping.is_set() or not await state.handed_over(stopping):
                return
        asked = asyncio.Event()
        if state.hands_over:
            supervisor.keep("handover", partial(until_asked, settings.checkpoint_path, asked))
        await agent.run(stopping)
        await unless(stopping, asked.wait())
        if stopping.is_set():
            return
        log.info("handing over to the next agent")
        await agent.hand_over()
        await state.give_back(stopping, supervisor)


class NodeAgent:
    """All parts of one agent, on a node whose GPUs are known."""

    def __init__(self, outside: Outside, topology: Topology) -> None:
        self._outside, self._settings = outside, outside.settings
        self._supervisor, settings = outside.supervisor, outside.settings
        self._judged = asyncio.Event()
        """Whether the health of the GPUs is known."""
        self._begun = False
        cgroups = CgroupFiles.here()
        self._containers = Containers(cgroups)

        def owners(allocation: AllocationID) -> Collection[PodUID]:
            return self._interfaces.owners(allocation)

        self._peers = PodCheck(self._containers, owners)
        freezer = CgroupFreezer(cgroups, owners, outside.cluster.terminating)
        self._legacy = LegacySockets(
            settings.virtual_manager_path,
            peers=self._peers,
            resident=self._confirmed,
            neighbours=self._containers,
            names=outside.runtime.name_of,
            driver=outside.volumes.version,
        )
        pauses = settings.on_bypass == "pause"
        if pauses and not freezer.writable:
            log.warning("--on-bypass=pause: containers are only reported: %s", READ_ONLY)
        self._virtual = VirtualManager(
            settings.virtual_manager_path,
            turns=Turns(settings.turns_path),
            nvml=outside.nvml,
            peers=self._peers,
            owners=self._peers,
            legacy=self._legacy,
            pauses=pauses and freezer.writable,
            freezer=freezer,
        )
        isolation = Isolations(
            self._virtual,
            outside.volumes,
            DeviceFiles(settings.device_directory, extra=settings.extra_devices),
            AllocationFiles(
                CdiFiles(settings.cdi_path, ALLOCATION),
                lambda: self._node.topology.gpus,
                settings.device_plugin_cdi,
            ),
        )
        store = GrantStore(outside.monitoring.journal, isolation)
        interface = CLAIMS if settings.interface == CLAIMS else DEVICE_PLUGINS
        self._node = Node(topology, store, interface)
        self._interfaces = Interfaces(
            *(self._node, outside),
            isolation=isolation,
            containers=self._containers,
            cause=self._cause,
            judged=self._judged,
        )
        self._managers: ManagerWatch | None = None
        if not settings.allow_other_managers and isinstance(outside.cluster, NodeCluster):
            self._managers = ManagerWatch(
                outside.cluster,
                lambda: [gpu.uuid for gpu in self._node.topology.gpus],
                self._withdraw,
                settings.other_managers_timeout,
            )
        self._parts = Monitored(
            self._interfaces,
            isolation,
            self._peers,
            self._containers,
            outside.cluster.pod_name,
            lambda: self._virtual.quiet,
            withdrawn=lambda: self._managers.reason if self._managers else "",
        )

    async def register(self) -> None:
        """Register, so that the kubelet's calls come here and wait for `run`. Raises what prevents
        it."""
        await self._interfaces.start()
        await self._interfaces.registered(self._settings.wait_timeout)
        await asyncio.sleep(CONNECTED_SECONDS)

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve from now on, until `stop`; returns when the kubelet can find us, or `stopping` is
        set. Raises what keeps the agent from listening."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._interfaces.register_anew)
        self._supervisor.keep("runtime version", self._outside.runtime.log_version)
        if self._managers:
            await unless(stopping, self._managers.first())
            self._supervisor.keep("other GPU managers", self._managers.run)
        await self._interfaces.take_up()
        self._outside.monitoring.observe(self._parts)
        self._supervisor.keep("cluster", self._publish_facts)
        for name, start in self._interfaces.first.items():
            self._supervisor.keep(name, start)
        await self._interfaces.start()
        self._supervisor.keep("start", self._begin)
        await unless(stopping, self._interfaces.served(self._settings.wait_timeout))

    async def hand_over(self) -> None:
        """Finish what the kubelet asked for; then nothing of the node's state is written any more.

        Containers keep their limits, in memory that they share with the next agent.
        """
        await self._supervisor.stop()
        if claims := self._interfaces.claims:
            await claims.plugin.drain()
        await self.stop()

    async def stop(self) -> None:
        """Stop all tasks, plugins and sockets. Safe to repeat."""
        await self._supervisor.stop()
        await self._interfaces.stop()
        await self._virtual.stop()

    async def _publish_facts(self) -> None:
        """Keep the API server informed of this node, for as long as the task lives; from when its
        health is watched on: before that, a GPU out of use would be told to be free again."""
        cluster, node = self._outside.cluster, self._node
        if isinstance(cluster, Standalone):
            return
        software = Software(self._outside.volumes.version, await cuda_version(self._outside.nvml))

        def facts() -> Facts | None:
            if not self._begun:
                return None
            return Facts(
                node.topology,
                node.journal.live(),
                software,
                node.unhealthy,
                node.leaving.union(node.closed(DEVICE_PLUGINS)),
                lambda grant: self._interfaces.owners(grant.id),
            )

        await cluster.run(facts)

    async def _begin(self) -> None:
        """Begin all background tasks, once the journal is read and the kubelet knows of us."""
        await registered_or_late(self._interfaces)
        self._begun = True
        await self._interfaces.serve_again()
        self._virtual.remove_leftovers()
        gc.freeze()  # the imports: 0.1 s of each full collection, amid a call
        around, node, virtual = self._outside, self._node, self._virtual
        recovery, period = self._settings.health_recovery, self._settings.health_check_period
        health = HealthWatch(
            (gpu.uuid for gpu in node.topology.gpus),
            NvmlHealth(),
            rules=HealthRules(
                checks_of(os.environ),
                RecoveryPolicy(transient=recovery, fatal=FATAL_FACTOR * recovery),
                ProbeTiming(probe=period, wait=min(ProbeTiming().wait, period)),
            ),
            reports=around.cluster,
            # Containers may hold GPUs that are missing.
            held=(gpu for one in node.journal.grants.values() for gpu in one.gpus),
            judged=self._judged,
        )
        self._parts.health = health
        tasks: dict[str, Start] = {
            "measuring": partial(virtual.measure_every, MEASURE_SECONDS),
            "sharing": partial(virtual.share_every, TICK_SECONDS),
            **self._interfaces.tasks,
            "gpu-manager's containers": partial(serve_legacy_pods, self._legacy, node),
            "health": partial(health.watch, self._interfaces),
            "driver directories": partial(
                prune_every, PRUNE_SECONDS, around.volumes, around.runtime
            ),
        }
        for name, start in tasks.items():
            self._supervisor.keep(name, start)

    async def _withdraw(self, gpus: frozenset[GpuUUID]) -> None:
        self._node.withdraw(gpus)
        await self._interfaces.refresh()

    def _confirmed(self, allocation: AllocationID) -> Claimant | None:
        """Return the container of an allocation, if it is confirmed; a claim may be of several."""
        grant = self._node.journal.get(allocation)
        claimed = grant is not None and isinstance(grant.source, ClaimSource)
        return None if claimed else self._node.journal.confirmed(allocation)

    def _cause(self, gpu: GpuUUID) -> str:
        """Return why a GPU is out of use; empty where that is not known."""
        known = self._parts.health.health.of(gpu) if self._parts.health else None
        return known.cause.text if known and known.cause else ""


def join(settings: AgentSettings) -> Cluster:
    """Return this node's cluster; log it once where there is no API server. Raises InputError."""
    if settings.standalone:
        return Standalone()
    try:
        access = find_access(settings.kubeconfig)
    except NoAccess as error:
        log.info("%s: not writing labels, annotations or events", error)
        return Standalone()
    node = node_name(settings.hostname_override)
    log.info("this is node %s at %s", node, access)
    recycle = settings.recycle_failed_pods
    return NodeCluster(KubeClient(access), node, labels=settings.node_labels, recycle=recycle)


async def serve_legacy_pods(sockets: LegacySockets, node: Node) -> None:
    """Serve the pods that began under gpu-manager, until cancelled."""
    while True:
        sockets.serve(legacy_containers(node.journal, sockets.candidates()))
        await asyncio.sleep(ORIGINALS_SECONDS)


def allow_many_files() -> None:
    """Raise the limit of open files: an allocation takes three descriptors, a process one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
