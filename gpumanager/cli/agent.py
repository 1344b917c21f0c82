"""`gpumanager agent`: the node agent. Its flags, and nothing else.

The flags of gpu-manager keep their names (with `-` or `_`), defaults and meaning, and so do those
of its older versions and of klog; Go's way to write `--share-mode=true` is understood. What the
agent is made of is in `gpumanager.agent`.
"""

import asyncio
import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from gpumanager import __version__
from gpumanager.cli.flags import (
    BOOLEAN,
    DURATION,
    Flags,
    log_format_option,
    log_level_option,
    shown,
)
from gpumanager.cli.logs import LogFlags, parse_modules, parse_threshold, start_logging
from gpumanager.errors import InputError
from gpumanager.names import ANNOTATION_CLAIMS_GPUS
from gpumanager.node_status.labels import parse_node_labels
from gpumanager.placement.preference import read_gpu_policy
from gpumanager.settings import (
    CGROUP_DRIVERS,
    CUDA_COMPAT,
    DRIVERS,
    INTERFACES,
    LOAD_MODULES,
    NOT_USED_YET,
    ON_BYPASS,
    UNHEALTHY_TAINTS,
    AgentSettings,
)
from gpumanager.units import Bytes, parse_bytes
from gpumanager.volume.config import read_json

log = logging.getLogger(__name__)

DEFAULTS: Final = AgentSettings()


def _size(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> Bytes | None:
    if value is None:
        return None
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def _labels(_ctx: click.Context, _parameter: click.Parameter, text: str) -> dict[str, str]:
    return parse_node_labels(text) if text else {}


def _gpu_policy(_ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    try:
        return read_gpu_policy(text) or DEFAULTS.gpu_policy
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: str | None) -> None:
    """Print the version; with `--version=raw` all that is known."""
    if wanted is None or wanted.lower() in {"false", "0"}:
        return
    more = f", Python {platform.python_version()}, {platform.machine()}"
    click.echo(f"gpumanager {__version__}{more if wanted == 'raw' else ''}")
    context.exit()


@click.command("agent", cls=Flags)
@click.option(
    "--driver",
    type=click.Choice(DRIVERS),
    default="nvidia",
    help="Kind of GPUs; there is only one.",
)
@click.option(
    "--volume-config", type=Path, help="Path of volume.conf; by default the one in the package."
)
@click.option(
    "--extra-config", type=Path, help="JSON file with additional device nodes for every container."
)
@click.option("--share-mode", **BOOLEAN, help="Allow requests below 100 cores.")
@click.option(
    "--virtual-manager-path",
    type=Path,
    default=DEFAULTS.virtual_manager_path,
    help="Directory for the sockets and limits of containers that share a GPU.",
)
@click.option(
    "--device-plugin-path",
    type=Path,
    default=DEFAULTS.device_plugin_path,
    help="The kubelet's directory of device plugins, with kubelet.sock.",
)
@click.option(
    "--checkpoint-path",
    type=Path,
    default=DEFAULTS.checkpoint_path,
    help="Directory for the journal of grants.",
)
@click.option(
    "--allocation-check-period",
    type=DURATION,
    default=shown(DEFAULTS.allocation_check_period),
    help="How often grants are compared with the kubelet's pods, and those of ended pods released.",
)
@click.option(
    "--wait-timeout",
    type=DURATION,
    default=shown(DEFAULTS.wait_timeout),
    help="Exit if the agent cannot listen on its own sockets for this long. It waits for the "
    "kubelet without a limit.",
)
@click.option(
    "--container-runtime-endpoint",
    metavar="SOCKET",
    help="CRI socket, a path or unix://…; by default where containerd, CRI-O and others listen.",
)
@click.option(
    "--docker-endpoint",
    metavar="SOCKET",
    help="CRI socket to try before the usual ones; an older name of --container-runtime-endpoint.",
)
@click.option(
    "--runtime-request-timeout",
    type=DURATION,
    default=shown(DEFAULTS.runtime_request_timeout),
    help="Timeout of each request to the container runtime.",
)
@click.option(
    "--volume-base",
    type=Path,
    help="Directory for the driver libraries that containers get; by default as volume.conf says.",
)
@click.option(
    "--driver-root", type=Path, default="/", help="Root directory that the driver is installed in."
)
@click.option(
    "--device-directory", type=Path, default="/dev", help="Directory of the GPUs' device nodes."
)
@click.option(
    "--load-modules",
    type=click.Choice(LOAD_MODULES),
    default=DEFAULTS.load_modules,
    help="Whether to load the driver if /dev/nvidiactl or /dev/nvidia-uvm is missing.",
)
@click.option(
    "--cuda-compat",
    type=click.Choice(CUDA_COMPAT),
    default=DEFAULTS.cuda_compat,
    help="What /usr/local/cuda/compat holds in containers that share a GPU.",
)
@click.option(
    "--compat32", **BOOLEAN, help="Mount the driver for 32-bit programs too. They are not limited."
)
@click.option(
    "--opencl-in-shares",
    **BOOLEAN,
    help="Mount OpenCL into containers that share a GPU too. It is not limited.",
)
@click.option(
    "--kubelet-endpoint",
    metavar="URL",
    default=DEFAULTS.kubelet_endpoint,
    help="The kubelet's HTTP server, for its list of pods.",
)
@click.option(
    "--kubelet-token",
    type=Path,
    default=DEFAULTS.kubelet_token,
    help="File with the token for --kubelet-endpoint.",
)
@click.option(
    "--pod-resources-socket",
    type=Path,
    default=DEFAULTS.pod_resources_socket,
    help="The kubelet's PodResources socket.",
)
@click.option(
    "--pods-api-socket",
    type=Path,
    default=DEFAULTS.pods_api_socket,
    help="The kubelet's Pods API socket (Kubernetes 1.37 and newer). Without it the agent uses "
    "--kubelet-endpoint.",
)
@click.option(
    "--health-check-period",
    type=DURATION,
    default=shown(DEFAULTS.health_check_period),
    help="How often the health of each GPU is checked; never with DP_DISABLE_HEALTHCHECKS=all.",
)
@click.option(
    "--health-recovery",
    type=DURATION,
    default=shown(DEFAULTS.health_recovery),
    help="How long a GPU has to be healthy before it is used again.",
)
@click.option(
    "--hostname-override",
    metavar="NAME",
    help="Name of the node; by default NODE_NAME, or the host's name.",
)
@click.option(
    "--kubeconfig",
    type=Path,
    help="Kubeconfig of the API server; by default the pod's service account.",
)
@click.option(
    "--incluster-mode", **BOOLEAN, help="Use the pod's service account and ignore --kubeconfig."
)
@click.option("--standalone", **BOOLEAN, help="Work without the API server.")
@click.option(
    "--node-labels",
    metavar="LABELS",
    callback=_labels,
    default="",
    show_default=False,
    help="Labels for the node, as k=v,k2=v2.",
)
@click.option(
    "--gpu-policy",
    metavar="POLICY",
    callback=_gpu_policy,
    default=DEFAULTS.gpu_policy,
    help="Policy for the GPU of a share if neither its pod nor the extender sets one: binpack, "
    "spread, least-waste.",
)
@click.option(
    "--recycle-failed-pods",
    **{**BOOLEAN, "default": True},
    help="Delete pods that failed admission here, so that their controllers recreate them.",
)
@click.option(
    "--query-addr",
    metavar="HOST",
    default=DEFAULTS.query_addr,
    help="Address to serve metrics and the node's page on.",
)
@click.option(
    "--query-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=DEFAULTS.query_port,
    help="Port of metrics, the node's page, /usage, /version, /healthz and /readyz; 0 serves none.",
)
@click.option(
    "--probe-socket",
    type=Path,
    help="Unix socket to serve /healthz and /readyz on, for `gpumanager probe`.",
)
@click.option(
    "--sample-period",
    type=DURATION,
    default=shown(DEFAULTS.sample_period),
    help="How often GPUs and containers are measured, however often metrics are read.",
)
@click.option(
    "--page-history",
    type=click.FloatRange(0, 300),
    default=DEFAULTS.page_history,
    show_default=True,
    metavar="SECONDS",
    help="How much of the past the node's page shows when it is opened; 0: what it has seen since.",
)
@click.option(
    "--reserved-memory",
    metavar="SIZE",
    callback=_size,
    help="Memory of each GPU that is never allocated, for example 512MiB; by default what the "
    "driver reserves.",
)
@click.option(
    "--on-bypass",
    type=click.Choice(ON_BYPASS),
    default=DEFAULTS.on_bypass,
    help="Action on containers that bypass their limits: only report them, pause those that exceed "
    "their GPU time, or end their processes. pause freezes their cgroups, and needs them mounted "
    "writable; end acts by pid: a pid that was reused is another process of the host.",
)
@click.option(
    "--turns-path",
    type=Path,
    default=DEFAULTS.turns_path,
    help="Directory on a tmpfs in which containers read when it is their turn on a shared GPU.",
)
@click.option(
    "--interface",
    type=click.Choice(INTERFACES),
    default=DEFAULTS.interface,
    help="How the kubelet asks for GPUs: by extended resources, by ResourceClaims (Kubernetes 1.36 "
    "and newer), or some GPUs by each. GPUs that pods already have by the other interface stay "
    "theirs until they end.",
)
@click.option(
    "--claims-gpus",
    metavar="N",
    type=click.IntRange(0),
    default=DEFAULTS.claims_gpus,
    help="With --interface=both: number of GPUs for claims, unless the node has the annotation "
    f"{ANNOTATION_CLAIMS_GPUS}.",
)
@click.option(
    "--gpu-move-delay",
    type=DURATION,
    default=shown(DEFAULTS.gpu_move_delay),
    help="How long a GPU has to be withdrawn and unused before the other interface offers it.",
)
@click.option(
    "--plugins-path",
    type=Path,
    default=DEFAULTS.plugins_path,
    help="For claims: the kubelet's directory of plugins, for the agent's socket.",
)
@click.option(
    "--plugins-registry-path",
    type=Path,
    default=DEFAULTS.plugins_registry_path,
    help="For claims: the directory in which the kubelet looks for drivers.",
)
@click.option(
    "--cdi-path",
    type=Path,
    default=DEFAULTS.cdi_path,
    help="For claims: the directory in which the container runtime looks for CDI files.",
)
@click.option(
    "--device-plugin-cdi",
    **BOOLEAN,
    help="For extended resources: pass GPUs as CDI devices (Kubernetes 1.29 and newer).",
)
@click.option(
    "--unhealthy-taint",
    type=click.Choice(UNHEALTHY_TAINTS),
    default=DEFAULTS.unhealthy_taint,
    help="For claims: effect of the taint of an unhealthy GPU; NoExecute evicts its pods too.",
)
@click.option(
    "--allow-other-managers",
    **BOOLEAN,
    help="Offer GPUs although another manager of them is found on this node: NVIDIA's device "
    "plugin, another DRA driver, HAMi, vgpu-manager.",
)
@click.option(
    "--other-managers-timeout",
    type=DURATION,
    default=shown(DEFAULTS.other_managers_timeout),
    help="After another manager was found: offer GPUs once it has shown no sign for this long.",
)
@click.option(
    "--cgroup-driver",
    type=click.Choice(CGROUP_DRIVERS),
    expose_value=False,
    help="Accepted, not used: the driver is found by itself.",
)
@log_level_option
@log_format_option
@click.option(
    "--vmodule",
    "modules",
    metavar="LEVELS",
    default="",
    show_default=False,
    help="Log verbosity of single modules, for example cri=4,listener*=4.",
)
@click.option("--log-dir", "directory", type=Path, help="Log to a file in this directory too.")
@click.option(
    "--logtostderr",
    "to_stderr",
    **{**BOOLEAN, "default": None},
    help="Log to standard error only. With =false, which needs --log-dir, log there only from "
    "--stderrthreshold on.",
)
@click.option(
    "--alsologtostderr",
    "also_to_stderr",
    **BOOLEAN,
    help="Log to standard error as well, whatever --logtostderr says.",
)
@click.option(
    "--stderrthreshold",
    "threshold",
    metavar="SEVERITY",
    default="ERROR",
    help="With --logtostderr=false: log to standard error from this severity on.",
)
@click.option(
    "--log-backtrace-at",
    "line",
    metavar="FILE:LINE",
    default="",
    show_default=False,
    help="Log the stack whenever this line logs.",
)
@click.option(
    "--log-flush-frequency",
    metavar="DURATION",
    expose_value=False,
    help="Accepted, not used: nothing is held back.",
)
@click.option(
    "--version",
    is_flag=False,
    flag_value="true",
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    metavar="[raw]",
    help="Print the version and exit; =raw adds details.",
)
def command(**flags: Any) -> None:
    """Offer this node's GPUs to the kubelet and enforce limits, until stopped."""
    # `doctor` has these flags too, and must not load the agent.
    from gpumanager.agent.wiring import serve

    start_logging(take_log_flags(flags))
    context = click.get_current_context()
    for name, reason in NOT_USED_YET.items():
        source = context.get_parameter_source(name.replace("-", "_"))
        if source is click.core.ParameterSource.COMMANDLINE:
            log.warning("--%s has no effect: %s", name, reason)
    asyncio.run(serve(read_settings(flags)))


def take_log_flags(flags: dict[str, Any]) -> LogFlags:
    """Take the flags of the log out of `flags`."""
    modules, threshold = flags.pop("modules"), flags.pop("threshold")
    names = ("level", "format", "directory", "to_stderr", "also_to_stderr", "line")
    given = {name: flags.pop(name) for name in names}
    return LogFlags(modules=parse_modules(modules), threshold=parse_threshold(threshold), **given)


def read_settings(flags: Mapping[str, Any]) -> AgentSettings:
    """Return the settings; raises InputError."""
    given = dict(flags)
    del given["driver"]
    extra = given.pop("extra_config")
    if given.pop("incluster_mode"):
        given["kubeconfig"] = None
    given["hostname_override"] = given["hostname_override"] or None
    return AgentSettings(**given, extra_devices=read_extra_config(extra) if extra else ())


def read_extra_config(path: Path) -> tuple[str, ...]:
    """Read the device paths of `{"default": {"devices": [path, …]}}`; raises InputError."""
    content = read_json(path)
    entry = content.get("default", {}) if isinstance(content, dict) else None
    devices = entry.get("devices", []) if isinstance(entry, dict) else None
    if not isinstance(devices, list) or not all(isinstance(one, str) for one in devices):
        raise InputError(path, 'write {"default": {"devices": ["/dev/…"]}}')
    return tuple(devices)
