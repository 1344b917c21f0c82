"""Settings of the node agent, as its flags give them.

Names, defaults and meanings of gpu-manager's flags are kept; flags that are new say so. A flag the
agent reads and does not use yet is in `NOT_USED_YET`, and said aloud.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpumanager.names import (
    CDI_PATH,
    CLAIMS,
    DEVICE_PLUGIN_PATH,
    DEVICE_PLUGINS,
    PLUGINS_PATH,
    PLUGINS_REGISTRY_PATH,
    POD_RESOURCES_SOCKET,
    PODS_API_SOCKET,
    TURNS_PATH,
)
from gpumanager.units import Bytes

DRIVERS: Final = ("nvidia",)
CGROUP_DRIVERS: Final = ("cgroupfs", "systemd")
QUERY_PORT: Final = 5678
OVER_COMPAT: Final = "shim"
CUDA_COMPAT: Final = (OVER_COMPAT, "image")
LOAD_MISSING: Final = "missing"
LOAD_MODULES: Final = (LOAD_MISSING, "never")
ON_BYPASS: Final = ("report", "pause", "end")
"""What may be done about containers that get round their limits."""
INTERFACES: Final = (DEVICE_PLUGINS, CLAIMS, "both")
"""By what the kubelet may ask for GPUs: extended resources, or ResourceClaims, or some by each."""

UNHEALTHY_TAINTS: Final = ("NoSchedule", "NoExecute")
"""What the taint of a GPU out of use does: nothing new comes to it, or its pods go too."""

NOT_USED_YET: Final = {
    "cgroup-driver": "the agent sees it in the names of cgroups",
}
"""Accepted flags without effect, and why."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent runs on.

    share_mode: allow requests below 100 cores, as gpu-manager's flag does.
    allocation_check_period, wait_timeout, runtime_request_timeout, sample_period: seconds.
    kubeconfig: None: by the token of the agent's own pod. standalone: without the API server.
    query_port: 0: none. hostname_override: the node's name; None: NODE_NAME of the environment,
    or the host's.
    The fields from volume_base on are new.
    """

    volume_config: Path | None = None
    """None: the one shipped with the package."""
    share_mode: bool = False
    virtual_manager_path: Path = Path("/etc/gpu-manager/vm")
    device_plugin_path: Path = Path(DEVICE_PLUGIN_PATH)
    checkpoint_path: Path = Path("/etc/gpu-manager/checkpoint")
    allocation_check_period: float = 30.0
    wait_timeout: float = 60.0
    container_runtime_endpoint: str | None = None
    """The CRI socket; None: where runtimes are known to listen."""
    docker_endpoint: str | None = None
    """What older gpu-managers had for it; Docker's own socket is passed over."""
    runtime_request_timeout: float = 5.0
    extra_devices: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    standalone: bool = False
    hostname_override: str | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)
    query_addr: str = "localhost"
    query_port: int = QUERY_PORT
    probe_socket: Path | None = None
    """Of /healthz and /readyz, for our own account alone; None: there is none."""
    sample_period: float = 1.0
    page_history: float = 0.0
    """Seconds of samples that the node's page shows when it is opened."""
    volume_base: Path | None = None
    """Where mirrors are kept; None: where volume.conf says."""
    driver_root: Path = Path("/")
    """The root of the file system the driver is installed in."""
    device_directory: Path = Path("/dev")
    """Where the host's device nodes lie; containers see them in /dev."""
    load_modules: str = LOAD_MISSING
    """When the driver's kernel modules are loaded: one of LOAD_MODULES."""
    cuda_compat: str = OVER_COMPAT
    """What containers that share a GPU find in /usr/local/cuda/compat: one of CUDA_COMPAT."""
    compat32: bool = False
    """Whether 32-bit programs, which are not limited, find the driver."""
    opencl_in_shares: bool = False
    """Whether containers that share a GPU get OpenCL, which is not limited."""
    kubelet_endpoint: str = "https://127.0.0.1:10250"
    """The kubelet's own API, for /pods."""
    kubelet_token: Path | None = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    pod_resources_socket: Path = Path(POD_RESOURCES_SOCKET)
    pods_api_socket: Path = Path(PODS_API_SOCKET)
    """The kubelet's Pods API, preferred to /pods."""
    health_check_period: float = 10.0
    """Seconds between two rounds of asking every GPU how it is; events come at once."""
    health_recovery: float = 30.0
    """Good seconds after which a GPU is used again; four times as many where it needed a reset."""
    gpu_policy: str = "binpack"
    """Which policy chooses the GPU for a share where neither the pod nor a scheduler says."""
    recycle_failed_pods: bool = True
    reserved_memory: Bytes | None = None
    """Of each GPU, never granted; None: what its driver keeps for itself."""
    interface: str = DEVICE_PLUGINS
    """By what the kubelet asks for GPUs: one of INTERFACES."""
    device_plugin_cdi: bool = False
    """Whether Allocate answers with a CDI device in the place of mounts and device nodes."""
    unhealthy_taint: str = UNHEALTHY_TAINTS[0]
    """Effect of the taint on unhealthy GPUs in the node's slice: one of UNHEALTHY_TAINTS."""
    claims_gpus: int = 0
    """Of `both`: how many GPUs claims have where the node's annotation says nothing."""
    gpu_move_delay: float = 15.0
    """Seconds for which a GPU is withdrawn and unused before the other interface offers it, and in
    which schedulers learn that it is withdrawn: a kubelet tells what is allocatable every 10 s."""
    plugins_path: Path = Path(PLUGINS_PATH)
    plugins_registry_path: Path = Path(PLUGINS_REGISTRY_PATH)
    """The kubelet's directories for the sockets of DRA drivers, and where it finds them."""
    cdi_path: Path = Path(CDI_PATH)
    """Where the container runtime reads CDI files."""
    allow_other_managers: bool = False
    """Whether GPUs are offered although another manager of them is found on this node."""
    other_managers_timeout: float = 300.0
    """Seconds without a sign of another manager until GPUs are offered: as long as the kubelet
    keeps the capacity of a device plugin that has stopped."""
    on_bypass: str = ON_BYPASS[0]
    """What is done about containers that take more than limits allow: one of these."""
    turns_path: Path = Path(TURNS_PATH)
    """Where the words of turns lie, on a tmpfs."""
