"""What the node agent is made of, made from what the user gave."""

import logging
from dataclasses import dataclass
from functools import partial

from gpumanager.deviceplugin.dependencies import AdmissionEvents, ClaimOf, Dependencies
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.gpu.discovery import DeviceDiscovery
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.isolation.table import Isolations
from gpumanager.kubelet.pod_resources import PodResources
from gpumanager.kubelet.pods import PodsSource
from gpumanager.legacy.checkpoint import FILE_NAME, inherited_grants
from gpumanager.names import KUBELET_CHECKPOINT
from gpumanager.node_status.join import Cluster, Standalone, join
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.runtime.processes import Containers, GpuTenants
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import SkippedErrors
from gpumanager.volume.values import DriverVolumes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outside:
    """What the agent talks to, and the driver's mirrors."""

    cluster: Cluster
    pods: PodsSource
    runtime: ContainerRuntime
    nvml: NvmlService
    search: DeviceDiscovery
    volumes: DriverVolumes


def join_cluster(settings: AgentSettings) -> Cluster:
    """Return the cluster that this node is in. Raises InputError for a kubeconfig that is none."""
    if settings.standalone:
        return Standalone()
    return join(
        settings.kubeconfig,
        settings.hostname_override,
        settings.node_labels,
        recycle=settings.recycle_failed_pods,
    )


def dependencies(
    settings: AgentSettings,
    outside: Outside,
    isolation: Isolations,
    containers: Containers,
    *,
    events: AdmissionEvents,
    skipped: SkippedErrors,
    claim_of: ClaimOf,
) -> Dependencies:
    """Return what the allocator works with."""
    return Dependencies(
        isolation=isolation,
        books=DeviceCheckpoint(
            settings.device_plugin_path / KUBELET_CHECKPOINT,
            PodResources(settings.pod_resources_socket),
        ),
        pods=outside.pods,
        runtime=outside.runtime,
        tenants=GpuTenants(outside.nvml, containers),
        annotations=outside.cluster,
        inherited=partial(inherited_grants, settings.checkpoint_path / FILE_NAME),
        events=events,
        claim_of=claim_of,
        share_mode=settings.share_mode,
        gpu_policy=settings.gpu_policy,
        skipped=skipped,
    )
