"""`gpumanager agent`: the node agent. Its flags, and nothing else.

The flags of gpu-manager keep their names (with `-` or `_`), defaults and meaning, and so do those
of its older versions and of klog; Go's way to write `--share-mode=true` is understood. What the
agent is made of is in `node_agent`.
"""

import asyncio
import logging
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from gpumanager import __version__
from gpumanager.cli.logs import LogFlags, parse_modules, parse_threshold, start_logging
from gpumanager.cli.node.wiring import serve
from gpumanager.errors import InputError
from gpumanager.names import ANNOTATION_CLAIMS_GPUS
from gpumanager.node.labels import parse_node_labels
from gpumanager.placement.preference import read_gpu_policy
from gpumanager.settings import (
    BEHIND_THE_SHIM,
    CGROUP_DRIVERS,
    CUDA_COMPAT,
    DRIVERS,
    INTERFACES,
    LOAD_MODULES,
    NOT_USED_YET,
    UNHEALTHY_TAINTS,
    AgentSettings,
)
from gpumanager.units import Bytes, parse_bytes
from gpumanager.volume.config import read_json

log = logging.getLogger(__name__)

DEFAULTS: Final = AgentSettings()

BOOLEAN: Final[Mapping[str, Any]] = {
    "type": bool,
    "default": False,
    "is_flag": False,
    "flag_value": True,
}
"""A flag as Go has it: `--name`, `--name=true`, `--name=false`."""


_EMPTY: Final = re.compile(r"--[a-z][a-z_-]*=")
_SHORT: Final = re.compile(r"^(-[a-z])=")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
"""Of a Go duration, as `1m30s` has two."""


class Flags(click.Command):
    """A command that takes `_` for `-` in the names of its flags, as gpu-manager does.

    `--name=` means what leaving it out does. What a flag is not good for yet is in its help.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [word for word in args if not _EMPTY.fullmatch(word)]
        return super().parse_args(ctx, [_as_click_has_it(word) for word in given])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        for param in params:
            reason = NOT_USED_YET.get((param.name or "").replace("_", "-"))
            if isinstance(param, click.Option) and reason:
                param.help = f"Accepted, not used: {reason}."
        return params


def _as_click_has_it(word: str) -> str:
    """`--share_mode=true` as `--share-mode=true`, and `-v=4` as `-v4`."""
    if not word.startswith("--"):
        return _SHORT.sub(r"\1", word, count=1)
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _size(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> Bytes | None:
    if value is None:
        return None
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def _seconds(_ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """`30`, `1.5`, `1m30s`: gpu-manager has numbers for some flags, Go durations for others."""
    try:
        rest = _PART.sub("", value)
        parts = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        seconds = parts if not rest else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{value!r} is not a time; write for example 30s", param=parameter)
    return seconds


def _labels(_ctx: click.Context, _parameter: click.Parameter, text: str) -> dict[str, str]:
    return parse_node_labels(text) if text else {}


def _gpu_policy(_ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    try:
        return read_gpu_policy(text) or DEFAULTS.gpu_policy
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: str | None) -> None:
    """`--version`, `--version=true`, and `--version=raw` with all that is known."""
    if wanted is None or wanted.lower() in {"false", "0"}:
        return
    more = f", Python {platform.python_version()}, {platform.machine()}"
    click.echo(f"gpumanager {__version__}{more if wanted == 'raw' else ''}")
    context.exit()


@click.command("agent", cls=Flags)
@click.option("--driver", type=click.Choice(DRIVERS), default="nvidia", show_default=True)
@click.option("--volume-config", type=Path, help="volume.conf; by default the one shipped.")
@click.option("--extra-config", type=Path, help="JSON: more device nodes for every container.")
@click.option("--share-mode", **BOOLEAN, help="Allow requests below 100 cores.")
@click.option("--virtual-manager-path", type=Path, default=DEFAULTS.virtual_manager_path)
@click.option("--device-plugin-path", type=Path, default=DEFAULTS.device_plugin_path)
@click.option("--checkpoint-path", type=Path, default=DEFAULTS.checkpoint_path)
@click.option(
    "--allocation-check-period", callback=_seconds, default=str(DEFAULTS.allocation_check_period)
)
@click.option(
    "--wait-timeout",
    callback=_seconds,
    default=str(DEFAULTS.wait_timeout),
    help="Leave where our own sockets cannot listen so long. A kubelet is waited for without end.",
)
@click.option(
    "--container-runtime-endpoint",
    help="CRI socket, a path or unix://…; by default where containerd, CRI-O and others listen.",
)
@click.option("--docker-endpoint", help="The same, tried before the known ones.")
@click.option(
    "--runtime-request-timeout",
    callback=_seconds,
    default=str(DEFAULTS.runtime_request_timeout),
    help="For each answer of the container runtime.",
)
@click.option("--volume-base", type=Path, help="Keep mirrors here, not where volume.conf says.")
@click.option("--driver-root", type=Path, default="/", help="Root the driver is installed in.")
@click.option("--device-directory", type=Path, default="/dev", help="Where device nodes lie.")
@click.option(
    "--load-modules",
    type=click.Choice(LOAD_MODULES),
    default=DEFAULTS.load_modules,
    help="Load the driver where /dev/nvidiactl or /dev/nvidia-uvm is missing.",
)
@click.option(
    "--cuda-compat",
    type=click.Choice(CUDA_COMPAT),
    default=DEFAULTS.cuda_compat,
    help="What /usr/local/cuda/compat holds in containers that share a GPU.",
)
@click.option("--compat32", **BOOLEAN, help="32-bit programs find the driver; none is limited.")
@click.option("--kubelet-endpoint", default=DEFAULTS.kubelet_endpoint, help="For /pods.")
@click.option("--kubelet-token", type=Path, default=DEFAULTS.kubelet_token)
@click.option("--pod-resources-socket", type=Path, default=DEFAULTS.pod_resources_socket)
@click.option(
    "--pods-api-socket",
    type=Path,
    default=DEFAULTS.pods_api_socket,
    help="The kubelet's, from Kubernetes 1.37 on; else /pods is read.",
)
@click.option(
    "--health-check-period",
    callback=_seconds,
    default=str(DEFAULTS.health_check_period),
    help="How often each GPU is asked how it is. DP_DISABLE_HEALTHCHECKS=all: never.",
)
@click.option(
    "--health-recovery",
    callback=_seconds,
    default=str(DEFAULTS.health_recovery),
    help="How long a GPU has to be good before it is used again.",
)
@click.option("--hostname-override", help="The node's name; else NODE_NAME, or the host's name.")
@click.option("--kubeconfig", type=Path, help="For the API server; else the agent's own token.")
@click.option("--incluster-mode", **BOOLEAN, help="The agent's own token, whatever --kubeconfig.")
@click.option("--standalone", **BOOLEAN, help="Work without the API server.")
@click.option("--node-labels", callback=_labels, default="", help="For the node: k=v,k2=v2.")
@click.option(
    "--gpu-policy",
    callback=_gpu_policy,
    default=DEFAULTS.gpu_policy,
    show_default=True,
    help="How the GPU for a share is chosen where neither its pod nor the extender says: binpack, "
    "spread, least-waste.",
)
@click.option(
    "--recycle-failed-pods",
    **{**BOOLEAN, "default": True},
    help="Delete pods that failed admission here, for their owners to make them anew.",
)
@click.option("--query-addr", default=DEFAULTS.query_addr, help="Where metrics are served.")
@click.option(
    "--query-port",
    type=click.IntRange(0, 65535),
    default=DEFAULTS.query_port,
    help="Of metrics, /usage, /graph, /version, /healthz, /readyz; 0: none of them.",
)
@click.option(
    "--probe-socket",
    type=Path,
    help="A unix socket for /healthz and /readyz alone, which nobody else reaches: see "
    "`gpumanager probe`.",
)
@click.option(
    "--sample-period",
    callback=_seconds,
    default=str(DEFAULTS.sample_period),
    help="Between two looks at GPUs and containers, however often metrics are read.",
)
@click.option(
    "--reserved-memory",
    callback=_size,
    help="Of each GPU, granted to nobody: 512MiB; else what its driver keeps for itself.",
)
@click.option(
    "--gpu-switch-cost",
    type=click.IntRange(0, 500),
    default=DEFAULTS.gpu_switch_cost,
    help="Microseconds that a GPU loses when it switches to another process.",
)
@click.option(
    "--behind-the-shim",
    type=click.Choice(BEHIND_THE_SHIM),
    default=DEFAULTS.behind_the_shim,
    help="What is done about containers that get round their limits, beside reporting them: pause "
    "those that take more GPU time than they were granted; nothing; or end their processes.",
)
@click.option(
    "--interface",
    type=click.Choice(INTERFACES),
    default=DEFAULTS.interface,
    show_default=True,
    help="By what the kubelet asks for GPUs: extended resources, or ResourceClaims (Kubernetes "
    "1.36 and newer), or some by each. What pods have by the other is served until they end.",
)
@click.option(
    "--claims-gpus",
    type=click.IntRange(0),
    default=DEFAULTS.claims_gpus,
    help="With --interface=both: how many GPUs claims have, where the node's annotation "
    f"{ANNOTATION_CLAIMS_GPUS} says nothing.",
)
@click.option(
    "--move-after",
    callback=_seconds,
    default=str(DEFAULTS.move_after),
    help="How long a GPU has to be withdrawn and unused before the other interface offers it.",
)
@click.option("--plugins-path", type=Path, default=DEFAULTS.plugins_path, help="For claims.")
@click.option(
    "--plugins-registry-path",
    type=Path,
    default=DEFAULTS.plugins_registry_path,
    help="For claims: where the kubelet looks for drivers.",
)
@click.option(
    "--cdi-path",
    type=Path,
    default=DEFAULTS.cdi_path,
    help="For claims: where the container runtime reads CDI files.",
)
@click.option(
    "--unhealthy-taint",
    type=click.Choice(UNHEALTHY_TAINTS),
    default=DEFAULTS.unhealthy_taint,
    show_default=True,
    help="For claims: what the taint of a GPU out of use does; NoExecute evicts its pods too.",
)
@click.option("--cgroup-driver", type=click.Choice(CGROUP_DRIVERS), expose_value=False)
@click.option("-v", "--v", "level", type=int, default=0, help="Log level; 4 and above: all.")
@click.option("--vmodule", "modules", default="", help="Log levels of single modules: cri=4,…")
@click.option("--log-dir", "directory", type=Path, help="Log to a file there too.")
@click.option("--logtostderr", "to_stderr", **{**BOOLEAN, "default": None})
@click.option("--alsologtostderr", "also_to_stderr", **BOOLEAN)
@click.option("--stderrthreshold", "threshold", default="ERROR", help="With --logtostderr=false.")
@click.option("--log-backtrace-at", "line", default="", help="FILE:LINE at which to log a stack.")
@click.option("--log-flush-frequency", expose_value=False, help="No effect: nothing is held back.")
@click.option(
    "--version",
    is_flag=False,
    flag_value="true",
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Say the version and leave; =raw says more.",
)
def command(**flags: Any) -> None:
    """Answer the kubelet for GPUs on this node, until told to stop."""
    start_logging(take_log_flags(flags))
    _say_what_is_not_used()
    asyncio.run(serve(read_settings(flags)))


def take_log_flags(flags: dict[str, Any]) -> LogFlags:
    """Taken out of `flags`."""
    modules, threshold = flags.pop("modules"), flags.pop("threshold")
    names = ("level", "directory", "to_stderr", "also_to_stderr", "line")
    given = {name: flags.pop(name) for name in names}
    return LogFlags(modules=parse_modules(modules), threshold=parse_threshold(threshold), **given)


def read_settings(flags: Mapping[str, Any]) -> AgentSettings:
    """What the flags say; raises InputError."""
    given = dict(flags)
    del given["driver"]
    extra = given.pop("extra_config")
    if given.pop("incluster_mode"):
        given["kubeconfig"] = None
    given["hostname_override"] = given["hostname_override"] or None
    return AgentSettings(**given, extra_devices=read_extra_config(extra) if extra else ())


def read_extra_config(path: Path) -> tuple[str, ...]:
    """Device paths of `{"default": {"devices": [path, …]}}`; raises InputError."""
    content = read_json(path)
    entry = content.get("default", {}) if isinstance(content, dict) else None
    devices = entry.get("devices", []) if isinstance(entry, dict) else None
    if not isinstance(devices, list) or not all(isinstance(one, str) for one in devices):
        raise InputError(path, 'write {"default": {"devices": ["/dev/…"]}}')
    return tuple(devices)


def _say_what_is_not_used() -> None:
    context = click.get_current_context()
    for name, reason in NOT_USED_YET.items():
        source = context.get_parameter_source(name.replace("-", "_"))
        if source is click.core.ParameterSource.COMMANDLINE:
            log.warning("--%s has no effect: %s", name, reason)
