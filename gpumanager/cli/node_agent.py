"""The node agent, put together: the one place where its parts meet.

In the order of its start: what the user gave, GPUs by NVML, driver directories, journal and
sockets of what runs already, device plugin. What only waits for the outside (the kubelet) waits in
the background.
"""

import asyncio
import logging
import resource
import signal
from dataclasses import replace
from typing import Any, Final

import vcuda_shim
from gpumanager.allocator import inheritance
from gpumanager.allocator.allocator import Allocator
from gpumanager.allocator.answer import DeviceFiles
from gpumanager.allocator.journal import Claimant
from gpumanager.allocator.journal_file import FILE_NAME, JournalFile
from gpumanager.allocator.kubelet_books import KubeletBooks
from gpumanager.allocator.surroundings import Surroundings
from gpumanager.allocator.wards import wards
from gpumanager.cli.gpu_health import Kubelet, health_watch, unless
from gpumanager.cli.upkeep import PRUNE_SECONDS, prune_every
from gpumanager.cluster.join import Alone, Cluster, join
from gpumanager.cluster.labels import Software
from gpumanager.cluster.service import Facts
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.gpu.memory import NvmlMeter
from gpumanager.gpu.modules import HostKernel, load_modules
from gpumanager.gpu.search import Search
from gpumanager.gpu.tree import render_tree
from gpumanager.gpu.utilization import NvmlUtilization
from gpumanager.gpu.versions import cuda_version
from gpumanager.kubelet.pod_resources import PodResources
from gpumanager.kubelet.pods import KubeletPods, PodsSource, PodUID
from gpumanager.names import KUBELET_CHECKPOINT
from gpumanager.runtime.cgroup_files import CgroupFiles
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.runtime.endpoint import candidates, parse_endpoint
from gpumanager.runtime.named import NamedContainers
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.runtime.tenants import GpuTenants
from gpumanager.runtime.values import LiveContainers
from gpumanager.settings import LOAD_MISSING, OVER_COMPAT, AgentSettings
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.sharing import TICK_SECONDS
from gpumanager.virtual.values import AllocationID
from gpumanager.volume.config import SHIPPED, VolumeConfig, read_config
from gpumanager.volume.manager import publish
from gpumanager.volume.shims import Shims
from gpumanager.volume.values import DriverVolumes

log = logging.getLogger(__name__)

SHIMS: Final = Shims(
    cuda=vcuda_shim.SHIM_CUDA,
    ml=vcuda_shim.SHIM_NVML,
    cuda_link=vcuda_shim.LINK_CUDA,
    ml_link=vcuda_shim.LINK_NVML,
)
MEASURE_SECONDS: Final = 1.0
"""How often what drivers take by themselves is measured."""
RECONCILE_SECONDS: Final = 10.0
"""Between two looks at everybody's books, or less by --allocation-check-period."""
ORIGINALS_SECONDS: Final = 1.0
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises GpuManagerError where it cannot start."""
    config = read_config(settings.volume_config or SHIPPED)
    cluster = join_cluster(settings)
    pods = KubeletPods(settings.kubelet_endpoint, token=settings.kubelet_token)
    stopping = _stop_on_signals()
    allow_many_files()
    runtime = container_runtime(settings)
    await asyncio.to_thread(load_driver, settings)
    search = Search.here(settings.driver_root / "sys")
    topology = await unless(stopping, search.first())
    if topology is None:
        return await runtime.close()
    log.info("GPUs of this node:\n%s", render_tree(topology))
    volumes = await asyncio.to_thread(publish_driver, settings, config)

    def settled(allocation: AllocationID) -> Claimant | None:
        return allocator.journal.settled(allocation)

    def settled_pod(allocation: AllocationID) -> PodUID | None:
        return allocator.journal.settled_pod(allocation)

    containers = Containers(CgroupFiles.here())
    virtual = VirtualSockets(
        settings.virtual_manager_path,
        meter=NvmlMeter(),
        utilization=NvmlUtilization(),
        models={gpu.uuid: gpu.model for gpu in topology.gpus},
        peers=PodCheck(containers, settled_pod),
        resident=settled,
        neighbours=containers,
        names=NamedContainers(containers, runtime),
        driver=volumes.version,
    )
    around = surroundings(settings, pods, volumes, virtual, runtime)
    allocator = Allocator(topology, replace(around, annotations=cluster))
    plugin = DevicePlugin(allocator, settings.device_plugin_path)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, plugin.register_anew)
    allocator.on_devices_changed = plugin.refresh
    greeting = asyncio.create_task(runtime.say_who())
    pruning = asyncio.create_task(prune_every(PRUNE_SECONDS, volumes, runtime))
    telling = asyncio.create_task(tell(cluster, allocator, volumes.version))
    telling.add_done_callback(_complain)
    try:
        await allocator.recover()
        await plugin.start()
        health = health_watch(settings, allocator, cluster)
        watching = asyncio.create_task(health.watch(Kubelet(allocator, plugin, search)))
        watching.add_done_callback(_complain)
        await _until_stopped(stopping, allocator, plugin, virtual, settings)
        watching.cancel()
    finally:
        await plugin.stop()
        await virtual.stop()
        greeting.cancel()
        pruning.cancel()
        telling.cancel()
        await runtime.close()


def load_driver(settings: AgentSettings) -> None:
    """By policy, and as far as it can be done; NVML then tells what there is."""
    if settings.load_modules == LOAD_MISSING:
        kernel = HostKernel(settings.device_directory, settings.driver_root)
        if missing := load_modules(kernel):
            log.warning("%s: missing still: %s", settings.device_directory, ", ".join(missing))


def publish_driver(settings: AgentSettings, config: VolumeConfig) -> DriverVolumes:
    """Mirror the host's driver, with and without the shims."""
    volumes = publish(config, root=settings.driver_root, shims=SHIMS, base=settings.volume_base)
    log.info("driver %s: shared %s, whole %s", volumes.version, volumes.shared, volumes.whole)
    return replace(
        volumes, over_compat=settings.cuda_compat == OVER_COMPAT, compat32=settings.compat32
    )


def join_cluster(settings: AgentSettings) -> Cluster:
    """Raises InputError for a kubeconfig that is none."""
    if settings.standalone:
        return Alone()
    return join(
        settings.kubeconfig,
        settings.hostname_override,
        settings.node_labels,
        recycle=settings.recycle_failed_pods,
    )


async def tell(cluster: Cluster, allocator: Allocator, driver: str) -> None:
    """What the API server is told of this node, for as long as the task lives."""
    software = Software(driver, await asyncio.to_thread(cuda_version))
    await cluster.run(
        lambda: Facts(allocator.topology, allocator.journal.live(), software, allocator.unhealthy)
    )


def container_runtime(settings: AgentSettings) -> ContainerRuntime:
    """Raises InputError for an endpoint that is none."""
    asked, docker = settings.container_runtime_endpoint, settings.docker_endpoint
    sockets = candidates(
        parse_endpoint(asked) if asked else None,
        parse_endpoint(docker, "--docker-endpoint") if docker else None,
    )
    return ContainerRuntime(sockets, settings.runtime_request_timeout)


def surroundings(
    settings: AgentSettings,
    pods: PodsSource,
    volumes: DriverVolumes,
    virtual: VirtualSockets,
    runtime: LiveContainers,
) -> Surroundings:
    return Surroundings(
        virtual=virtual,
        volumes=volumes,
        journal=JournalFile(settings.checkpoint_path / FILE_NAME),
        books=KubeletBooks(
            settings.device_plugin_path / KUBELET_CHECKPOINT,
            PodResources(settings.pod_resources_socket),
        ),
        pods=pods,
        runtime=runtime,
        tenants=GpuTenants(NvmlMeter(), Containers(CgroupFiles.here())),
        original=settings.checkpoint_path / inheritance.FILE_NAME,
        files=DeviceFiles(settings.device_directory, extra=settings.extra_devices),
        share_mode=settings.share_mode,
    )


async def follow_originals(virtual: VirtualSockets, allocator: Allocator) -> None:
    """Keep pods going that began under gpu-manager, until cancelled."""
    journal, found = allocator.journal, wards(allocator.journal)
    while True:
        if allocator.journal is not journal:
            journal, found = allocator.journal, wards(allocator.journal)
        virtual.serve_originals(found)
        await asyncio.sleep(ORIGINALS_SECONDS)


def allow_many_files() -> None:
    """Three descriptors for each allocation and one for each process: use all the system grants."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _until_stopped(
    stopping: asyncio.Event,
    allocator: Allocator,
    plugin: DevicePlugin,
    virtual: VirtualSockets,
    settings: AgentSettings,
) -> None:
    measuring = asyncio.create_task(virtual.measure_every(MEASURE_SECONDS))
    sharing = asyncio.create_task(virtual.share_every(TICK_SECONDS))
    reconciling = asyncio.create_task(
        allocator.reconcile_every(min(RECONCILE_SECONDS, settings.allocation_check_period))
    )
    serving = asyncio.create_task(plugin.served(settings.wait_timeout))
    told = asyncio.create_task(stopping.wait())
    following = asyncio.create_task(follow_originals(virtual, allocator))
    background: tuple[asyncio.Task[Any], ...] = (measuring, sharing, reconciling, following)
    for task in background:
        task.add_done_callback(_complain)
    try:
        await asyncio.wait((serving, told), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()  # raises what kept us from listening
        await told
    finally:
        for task in (*background, serving, told):
            task.cancel()


def _complain(task: asyncio.Task[Any]) -> None:
    """What goes on in the background ends with the agent, or with a mistake of ours."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has stopped", task.get_coro(), exc_info=error)


def _stop_on_signals() -> asyncio.Event:
    stopping = asyncio.Event()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # there is nothing to register again yet
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
