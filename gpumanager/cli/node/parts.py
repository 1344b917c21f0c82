"""What the node agent is made of, made from what the user gave."""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import vcuda_shim
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.gpu.discovery import DeviceDiscovery
from gpumanager.gpu.kernel_modules import HostKernel, load_modules
from gpumanager.gpu.nvml_library import LIBRARY
from gpumanager.gpu.usage.process_memory import NvmlMeter
from gpumanager.grants.journal_file import JournalFile
from gpumanager.isolation.table import Isolations
from gpumanager.kubelet.pod_resources import PodResources
from gpumanager.kubelet.pods import PodsSource
from gpumanager.names import KUBELET_CHECKPOINT
from gpumanager.node.join import Cluster, Standalone, join
from gpumanager.recovery import legacy_checkpoint
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.runtime.endpoint import candidates, parse_endpoint
from gpumanager.runtime.processes import Containers
from gpumanager.runtime.tenants import GpuTenants
from gpumanager.settings import LOAD_MISSING, OVER_COMPAT, AgentSettings
from gpumanager.supervisor import SkippedErrors
from gpumanager.volume.config import VolumeConfig
from gpumanager.volume.driver import find_nvml
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


@dataclass(frozen=True, slots=True)
class Outside:
    """What the agent talks to, and the driver's mirrors."""

    cluster: Cluster
    pods: PodsSource
    runtime: ContainerRuntime
    search: DeviceDiscovery
    volumes: DriverVolumes


def load_driver(settings: AgentSettings) -> None:
    """By policy, and as far as it can be done; NVML then tells what there is."""
    if settings.load_modules == LOAD_MISSING:
        kernel = HostKernel(settings.device_directory, settings.driver_root)
        if missing := load_modules(kernel):
            log.warning(
                "%s: still missing: %s; check the driver's kernel modules",
                settings.device_directory,
                ", ".join(missing),
            )


def lead_to_nvml(root: Path) -> None:
    """For a driver that is installed under another root than this process has."""
    if root != Path("/"):
        LIBRARY.lies_where(partial(find_nvml, root))


def publish_driver(settings: AgentSettings, config: VolumeConfig) -> DriverVolumes:
    """Mirror the host's driver, with and without the shims."""
    volumes = publish(
        config,
        root=settings.driver_root,
        shims=SHIMS,
        base=settings.volume_base,
        opencl=settings.opencl_in_shares,
    )
    log.info(
        "driver %s: libraries for shares in %s, for whole GPUs in %s",
        *(volumes.version, volumes.shared, volumes.whole),
    )
    return replace(
        volumes, over_compat=settings.cuda_compat == OVER_COMPAT, compat32=settings.compat32
    )


def join_cluster(settings: AgentSettings) -> Cluster:
    """Raises InputError for a kubeconfig that is none."""
    if settings.standalone:
        return Standalone()
    return join(
        settings.kubeconfig,
        settings.hostname_override,
        settings.node_labels,
        recycle=settings.recycle_failed_pods,
    )


def container_runtime(settings: AgentSettings) -> ContainerRuntime:
    """Raises InputError for an endpoint that is none."""
    asked, docker = settings.container_runtime_endpoint, settings.docker_endpoint
    sockets = candidates(
        parse_endpoint(asked) if asked else None,
        parse_endpoint(docker, "--docker-endpoint") if docker else None,
    )
    return ContainerRuntime(sockets, settings.runtime_request_timeout)


def dependencies(
    settings: AgentSettings,
    outside: Outside,
    isolation: Isolations,
    containers: Containers,
    journal: JournalFile,
    *,
    skipped: SkippedErrors,
) -> Dependencies:
    """Of the allocator."""
    return Dependencies(
        isolation=isolation,
        journal=journal,
        books=DeviceCheckpoint(
            settings.device_plugin_path / KUBELET_CHECKPOINT,
            PodResources(settings.pod_resources_socket),
        ),
        pods=outside.pods,
        runtime=outside.runtime,
        tenants=GpuTenants(NvmlMeter(), containers),
        annotations=outside.cluster,
        original=settings.checkpoint_path / legacy_checkpoint.FILE_NAME,
        share_mode=settings.share_mode,
        gpu_policy=settings.gpu_policy,
        skipped=skipped,
    )
