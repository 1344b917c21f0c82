"""Settings of the node agent: one row each, of which `gpumanager agent` makes a flag.

Names, defaults and meanings of gpu-manager's flags are kept.
"""

# ruff: noqa: RUF009 - `flag` returns a field, as `dataclasses.field` does

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpumanager.names import (
    ANNOTATION_CLAIMS_GPUS,
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

QUERY_PORT: Final = 5678
OVER_COMPAT: Final = "shim"
LOAD_MISSING: Final = "missing"
ON_BYPASS: Final = ("report", "pause", "end")


def flag(default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - click's word
    """Return a field that is a flag. more: `choices`, `range` or `metavar` of its value."""
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the agent runs on. A float is a duration in seconds, unless it has a range."""

    extra_devices: tuple[str, ...] = ()
    """Device nodes for every container, of --extra-config."""
    volume_config: Path | None = flag(
        None, "Path of volume.conf; by default the one in the package."
    )
    share_mode: bool = flag(False, "Allow requests below 100 cores.")
    virtual_manager_path: Path = flag(
        Path("/etc/gpu-manager/vm"),
        "Directory for the sockets and limits of containers that share a GPU.",
    )
    device_plugin_path: Path = flag(
        Path(DEVICE_PLUGIN_PATH), "The kubelet's directory of device plugins, with kubelet.sock."
    )
    checkpoint_path: Path = flag(
        Path("/etc/gpu-manager/checkpoint"), "Directory for the journal of grants."
    )
    allocation_check_period: float = flag(
        30.0,
        "How often grants are compared with the kubelet's pods, and those of ended pods released.",
    )
    wait_timeout: float = flag(
        60.0,
        "Exit if the agent cannot listen on its own sockets for this long. It waits for the "
        "kubelet without a limit.",
    )
    container_runtime_endpoint: str | None = flag(
        None,
        "CRI socket, a path or unix://…; by default where containerd, CRI-O and others listen.",
        metavar="SOCKET",
    )
    docker_endpoint: str | None = flag(
        None,
        "CRI socket to try before the usual ones; an older name of --container-runtime-endpoint.",
        metavar="SOCKET",
    )
    runtime_request_timeout: float = flag(5.0, "Timeout of each request to the container runtime.")
    volume_base: Path | None = flag(
        None,
        "Directory for the driver libraries that containers get; by default as volume.conf says.",
    )
    driver_root: Path = flag(Path("/"), "Root directory that the driver is installed in.")
    device_directory: Path = flag(Path("/dev"), "Directory of the GPUs' device nodes.")
    load_modules: str = flag(
        LOAD_MISSING,
        "Whether to load the driver if /dev/nvidiactl or /dev/nvidia-uvm is missing.",
        choices=(LOAD_MISSING, "never"),
    )
    cuda_compat: str = flag(
        OVER_COMPAT,
        "What /usr/local/cuda/compat holds in containers that share a GPU.",
        choices=(OVER_COMPAT, "image"),
    )
    compat32: bool = flag(False, "Mount the driver for 32-bit programs too. They are not limited.")
    opencl_in_shares: bool = flag(
        False, "Mount OpenCL into containers that share a GPU too. It is not limited."
    )
    kubelet_endpoint: str = flag(
        "https://127.0.0.1:10250",
        "The kubelet's HTTP server, for its list of pods.",
        metavar="URL",
    )
    kubelet_token: Path | None = flag(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        "File with the token for --kubelet-endpoint.",
    )
    pod_resources_socket: Path = flag(
        Path(POD_RESOURCES_SOCKET), "The kubelet's PodResources socket."
    )
    pods_api_socket: Path = flag(
        Path(PODS_API_SOCKET),
        "The kubelet's Pods API socket (Kubernetes 1.37 and newer). Without it the agent uses "
        "--kubelet-endpoint.",
    )
    health_check_period: float = flag(
        10.0,
        "How often the health of each GPU is checked; never with DP_DISABLE_HEALTHCHECKS=all.",
    )
    health_recovery: float = flag(30.0, "How long a GPU has to be healthy before it is used again.")
    hostname_override: str | None = flag(
        None, "Name of the node; by default NODE_NAME, or the host's name.", metavar="NAME"
    )
    kubeconfig: Path | None = flag(
        None, "Kubeconfig of the API server; by default the pod's service account."
    )
    standalone: bool = flag(False, "Work without the API server.")
    node_labels: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"help": "Labels for the node, as k=v,k2=v2.", "metavar": "LABELS"},
    )
    gpu_policy: str = flag(
        "binpack",
        "Policy for the GPU of a share if neither its pod nor the extender sets one: binpack, "
        "spread, least-waste.",
        metavar="POLICY",
    )
    recycle_failed_pods: bool = flag(
        True, "Delete pods that failed admission here, so that their controllers recreate them."
    )
    query_addr: str = flag(
        "localhost", "Address to serve metrics and the node's page on.", metavar="HOST"
    )
    query_port: int = flag(
        QUERY_PORT,
        "Port of metrics, the node's page, /usage, /version, /healthz and /readyz; 0 serves none.",
        range=(0, 65535),
        metavar="PORT",
    )
    probe_socket: Path | None = flag(
        None, "Unix socket to serve /healthz and /readyz on, for `gpumanager probe`."
    )
    sample_period: float = flag(
        1.0, "How often GPUs and containers are measured, however often metrics are read."
    )
    page_history: float = flag(
        0.0,
        "How much of the past the node's page shows when it is opened; 0: what it has seen since.",
        range=(0, 300),
        metavar="SECONDS",
    )
    reserved_memory: Bytes | None = flag(
        None,
        "Memory of each GPU that is never allocated, for example 512MiB; by default what the "
        "driver reserves.",
        metavar="SIZE",
    )
    on_bypass: str = flag(
        ON_BYPASS[0],
        "Action on containers that bypass their limits: only report them, pause those that exceed "
        "their GPU time, or end their processes. pause freezes their cgroups, and needs them "
        "mounted writable; end acts by pid: a pid that was reused is another process of the host.",
        choices=ON_BYPASS,
    )
    turns_path: Path = flag(
        Path(TURNS_PATH),
        "Directory on a tmpfs in which containers read when it is their turn on a shared GPU.",
    )
    interface: str = flag(
        DEVICE_PLUGINS,
        "How the kubelet asks for GPUs: by extended resources, by ResourceClaims (Kubernetes 1.36 "
        "and newer), or some GPUs by each. GPUs that pods already have by the other interface stay "
        "theirs until they end.",
        choices=(DEVICE_PLUGINS, CLAIMS, "both"),
    )
    claims_gpus: int = flag(
        0,
        "With --interface=both: number of GPUs for claims, unless the node has the annotation "
        f"{ANNOTATION_CLAIMS_GPUS}.",
        range=(0, None),
        metavar="N",
    )
    # Schedulers learn meanwhile that it is withdrawn: a kubelet reports what is allocatable every
    # 10 s.
    gpu_move_delay: float = flag(
        15.0,
        "How long a GPU has to be withdrawn and unused before the other interface offers it.",
    )
    plugins_path: Path = flag(
        Path(PLUGINS_PATH),
        "For claims: the kubelet's directory of plugins, for the agent's socket.",
    )
    plugins_registry_path: Path = flag(
        Path(PLUGINS_REGISTRY_PATH),
        "For claims: the directory in which the kubelet looks for drivers.",
    )
    cdi_path: Path = flag(
        Path(CDI_PATH),
        "For claims: the directory in which the container runtime looks for CDI files.",
    )
    device_plugin_cdi: bool = flag(
        False,
        "For extended resources: pass GPUs as CDI devices (Kubernetes 1.29 and newer).",
    )
    unhealthy_taint: str = flag(
        "NoSchedule",
        "For claims: effect of the taint of an unhealthy GPU; NoExecute evicts its pods too.",
        choices=("NoSchedule", "NoExecute"),
    )
    allow_other_managers: bool = flag(
        False,
        "Offer GPUs although another manager of them is found on this node: NVIDIA's device "
        "plugin, another DRA driver, HAMi, vgpu-manager.",
    )
    # As long as the kubelet keeps the capacity of a device plugin that has stopped.
    other_managers_timeout: float = flag(
        300.0,
        "After another manager was found: offer GPUs once it has shown no sign for this long.",
    )
