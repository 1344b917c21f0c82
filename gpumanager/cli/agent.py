"""`gpumanager agent`: the node agent. Its flags, and nothing else.

The flags of gpu-manager keep their names (with `-` or `_`), defaults and meaning; Go's way to write
`--share-mode=true` is understood. What the agent is made of is in `node_agent`.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from gpumanager.errors import InputError
from gpumanager.settings import BEHIND_THE_SHIM, DRIVERS, NOT_USED_YET, AgentSettings
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


class Flags(click.Command):
    """A command that takes `_` for `-` in the names of its flags, as gpu-manager does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_with_dashes(word) for word in args])


def _with_dashes(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _seconds(_ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """`30`, `1.5`, `30s`, `5m`: gpu-manager has numbers for some flags, Go durations for others."""
    scale = {"s": 1.0, "m": 60.0}.get(value[-1:], 0.0)
    try:
        seconds = float(value[:-1]) * scale if scale else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{value!r} is not a time; write for example 30s", param=parameter)
    return seconds


def _accepted(command: click.Command) -> click.Command:
    """Add the flags that are accepted and not used yet."""
    for name, reason in NOT_USED_YET.items():
        help_text = f"Accepted, not used: {reason}."
        command.params.append(click.Option([f"--{name}"], expose_value=False, help=help_text))
    return command


@_accepted
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
@click.option("--wait-timeout", callback=_seconds, default=str(DEFAULTS.wait_timeout))
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
@click.option("--kubelet-endpoint", default=DEFAULTS.kubelet_endpoint, help="For /pods.")
@click.option("--kubelet-token", type=Path, default=DEFAULTS.kubelet_token)
@click.option("--pod-resources-socket", type=Path, default=DEFAULTS.pod_resources_socket)
@click.option("--hostname-override", default="", help="The node's name, if not the host's.")
@click.option("--query-addr", default=DEFAULTS.query_addr, help="Where metrics are served.")
@click.option(
    "--query-port",
    type=click.IntRange(0, 65535),
    default=DEFAULTS.query_port,
    help="Of metrics, /usage, /graph, /version, /healthz, /readyz; 0: none of them.",
)
@click.option(
    "--sample-period",
    callback=_seconds,
    default=str(DEFAULTS.sample_period),
    help="Between two looks at GPUs and containers, however often metrics are read.",
)
@click.option(
    "--behind-the-shim",
    type=click.Choice(BEHIND_THE_SHIM),
    default=DEFAULTS.behind_the_shim,
    help="What is done about a process with GPU memory that no limit holds.",
)
@click.option("-v", "--v", "verbosity", type=int, default=0, help="Log level; 4 and above: all.")
def command(**flags: Any) -> None:
    """Answer the kubelet for GPUs on this node, until told to stop."""
    _start_logging(flags.pop("verbosity"))
    _say_what_is_not_used()
    del flags["driver"]
    extra = flags.pop("extra_config")
    if not flags["hostname_override"]:
        del flags["hostname_override"]
    settings = AgentSettings(**flags, extra_devices=read_extra_config(extra) if extra else ())
    from gpumanager.cli.node_agent import serve

    asyncio.run(serve(settings))


def read_extra_config(path: Path) -> tuple[str, ...]:
    """Device paths of `{"default": {"devices": [path, …]}}`; raises InputError."""
    content = read_json(path)
    entry = content.get("default", {}) if isinstance(content, dict) else None
    devices = entry.get("devices", []) if isinstance(entry, dict) else None
    if not isinstance(devices, list) or not all(isinstance(one, str) for one in devices):
        raise InputError(path, 'write {"default": {"devices": ["/dev/…"]}}')
    return tuple(devices)


_EVERYTHING = 4
"""The klog level from which gpu-manager's deployments log everything."""


def _start_logging(verbosity: int) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbosity >= _EVERYTHING else logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
    )


def _say_what_is_not_used() -> None:
    context = click.get_current_context()
    for name, reason in NOT_USED_YET.items():
        source = context.get_parameter_source(name.replace("-", "_"))
        if source is click.core.ParameterSource.COMMANDLINE:
            log.warning("--%s has no effect: %s", name, reason)
