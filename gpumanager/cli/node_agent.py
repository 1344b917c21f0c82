"""The node agent, put together: the one place where its parts meet.

In the order of its start: what the user gave, GPUs by NVML, driver directories, journal and
sockets of what runs already, device plugin. What only waits for the outside (the kubelet) waits in
the background.
"""

import asyncio
import logging
import resource
import signal
from typing import Any, Final

import vcuda_shim
from gpumanager.allocator.allocator import Allocator
from gpumanager.allocator.answer import DeviceFiles
from gpumanager.allocator.journal_file import JournalFile
from gpumanager.allocator.kubelet_books import KubeletBooks
from gpumanager.allocator.surroundings import Surroundings
from gpumanager.cli.monitoring import Monitoring, Parts
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.gpu.memory import NvmlMeter
from gpumanager.gpu.nvml import discover_here
from gpumanager.gpu.tree import render_tree
from gpumanager.gpu.utilization import NvmlUtilization
from gpumanager.kubelet.pod_resources import PodResources
from gpumanager.kubelet.pods import KubeletPods, PodsSource, PodUID
from gpumanager.monitor.latency import TimedAllocator
from gpumanager.names import KUBELET_CHECKPOINT
from gpumanager.runtime.cgroup_files import CgroupFiles
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.runtime.endpoint import candidates, parse_endpoint
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
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
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve(settings: AgentSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises GpuManagerError where it cannot start."""
    config = read_config(settings.volume_config or SHIPPED)
    pods = KubeletPods(settings.kubelet_endpoint, token=settings.kubelet_token)
    stopping = _stop_on_signals()
    allow_many_files()
    runtime = container_runtime(settings)
    topology = await asyncio.to_thread(discover_here, settings.driver_root / "sys")
    log.info("GPUs of this node:\n%s", render_tree(topology))
    volumes = await asyncio.to_thread(publish_driver, settings, config)

    def settled_pod(allocation: AllocationID) -> PodUID | None:
        return allocator.journal.settled_pod(allocation)

    monitoring, containers = Monitoring(settings), Containers(CgroupFiles.here())
    peers = PodCheck(containers, settled_pod)
    virtual = VirtualSockets(
        settings.virtual_manager_path,
        meter=NvmlMeter(),
        utilization=NvmlUtilization(),
        models={gpu.uuid: gpu.model for gpu in topology.gpus},
        peers=peers,
    )
    around = surroundings(settings, pods, volumes, virtual, monitoring.journal)
    allocator = TimedAllocator(topology, around, monitoring.latencies)
    plugin = DevicePlugin(allocator, settings.device_plugin_path)
    greeting = asyncio.create_task(runtime.say_who())
    parts = Parts(topology, allocator, plugin, virtual, peers, containers)
    showing = asyncio.create_task(monitoring.run(parts))
    showing.add_done_callback(_complain)
    try:
        await allocator.recover()
        await close_leftovers(virtual, allocator)
        await plugin.start()
        await _until_stopped(stopping, allocator, plugin, virtual, settings)
    finally:
        await plugin.stop()
        await virtual.stop()
        greeting.cancel()
        showing.cancel()
        await asyncio.wait((showing,))
        await runtime.close()


def publish_driver(settings: AgentSettings, config: VolumeConfig) -> DriverVolumes:
    """Mirror the host's driver, with and without the shims."""
    volumes = publish(config, root=settings.driver_root, shims=SHIMS, base=settings.volume_base)
    log.info("driver %s: shared %s, whole %s", volumes.version, volumes.shared, volumes.whole)
    return volumes


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
    journal: JournalFile,
) -> Surroundings:
    return Surroundings(
        virtual=virtual,
        volumes=volumes,
        journal=journal,
        books=KubeletBooks(
            settings.device_plugin_path / KUBELET_CHECKPOINT,
            PodResources(settings.pod_resources_socket),
        ),
        pods=pods,
        files=DeviceFiles(settings.device_directory, extra=settings.extra_devices),
        share_mode=settings.share_mode,
    )


async def close_leftovers(virtual: VirtualSockets, allocator: Allocator) -> None:
    """Remove the directories that a crash left behind: the journal does not know them."""
    for name in set(virtual.allocations()) - set(allocator.journal.allocations):
        log.info("removing what is left of allocation %s", name)
        await virtual.close(name)


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
    reconciling = asyncio.create_task(allocator.reconcile_every(settings.allocation_check_period))
    registering = asyncio.create_task(plugin.registered(settings.wait_timeout))
    told = asyncio.create_task(stopping.wait())
    background: tuple[asyncio.Task[Any], ...] = (measuring, sharing, reconciling)
    for task in background:
        task.add_done_callback(_complain)
    try:
        await asyncio.wait((registering, told), return_when=asyncio.FIRST_COMPLETED)
        if registering.done():
            registering.result()  # raises what kept us from the kubelet
            log.info("registered with the kubelet")
        await told
    finally:
        for task in (*background, registering, told):
            task.cancel()


def _complain(task: asyncio.Task[Any]) -> None:
    """What goes on in the background ends with the agent, or with a mistake of ours."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has stopped", task.get_coro(), exc_info=error)


def _stop_on_signals() -> asyncio.Event:
    stopping = asyncio.Event()
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
