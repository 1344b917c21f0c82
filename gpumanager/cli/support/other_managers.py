"""Find other managers of a node's GPUs, and change nothing."""

from gpumanager.doctor.values import Unseen
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Topology
from gpumanager.kube.access import NoAccess, find_access, node_name
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, Object
from gpumanager.node_status.manager_watch import NOT_FOUND, SLICES
from gpumanager.node_status.other_managers import (
    foreign_resources,
    other_managers,
    read_signs,
    read_slice,
)
from gpumanager.settings import AgentSettings


async def find_managers(
    settings: AgentSettings, topology: Topology | Unseen
) -> tuple[str, ...] | Unseen | None:
    """Find other managers of this node's GPUs; None where there is no API server."""
    if settings.standalone:
        return None
    try:
        access = find_access(settings.kubeconfig)
    except NoAccess:
        return None
    node = node_name(settings.hostname_override)
    gpus = () if isinstance(topology, Unseen) else [gpu.uuid for gpu in topology.gpus]
    pods, slices = list[Object](), list[Object]()
    try:
        async with KubeClient(access, agent="gpumanager-doctor") as api:
            signs = read_signs(await api.get(f"/api/v1/nodes/{node}"))
            await api.list("/api/v1/pods", pods.append, fieldSelector=f"spec.nodeName={node}")
            try:
                await api.list(SLICES, slices.append, fieldSelector=f"spec.nodeName={node}")
            except ApiRefused as error:
                if error.status != NOT_FOUND:
                    raise
        held = {
            f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}": found
            for one in pods
            if (found := foreign_resources(one))
        }
        foreign = [one for one in map(read_slice, slices) if one]
    except (GpuManagerError, *NOT_UNDERSTOOD) as error:
        return Unseen(str(error))
    return tuple(map(str, other_managers(signs, foreign, held, gpus)))
