"""`gpumanager agent`: the node agent. Its flags, and nothing else.

The flags of gpu-manager keep their names (with `-` or `_`), defaults and meaning, and so do those
of its older versions and of klog; Go's way to write `--share-mode=true` is understood. Most are
rows of `gpumanager.settings`. What the agent is made of is in `gpumanager.agent`.
"""

import asyncio
import platform
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
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
from gpumanager.node_status.labels import parse_node_labels
from gpumanager.placement.preference import read_gpu_policy
from gpumanager.settings import AgentSettings
from gpumanager.units import parse_bytes
from gpumanager.volume.config import read_json

PARSERS: Final = {
    "node_labels": parse_node_labels,
    "gpu_policy": lambda text: read_gpu_policy(text) or AgentSettings().gpu_policy,
    "reserved_memory": parse_bytes,
}
"""Read what click has no type for; raise ValueError."""


def option_of(row: "Field[Any]") -> click.Option:
    """Return the flag of a setting."""
    more = dict(row.metadata)
    choices, ends = more.pop("choices", None), more.pop("range", None)
    default: Any = None if row.default is MISSING else row.default
    if row.type is bool:
        more |= BOOLEAN
    elif choices:
        more["type"] = click.Choice(choices)
    elif ends:
        more["type"] = (click.IntRange if row.type is int else click.FloatRange)(*ends)
    elif row.type is float:
        more["type"], default = DURATION, shown(default)
    elif row.type in (Path, Path | None):
        more["type"] = Path
    if parse := PARSERS.get(row.name):

        def callback(_ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
            try:
                return None if text is None else parse(text)
            except ValueError as error:
                raise click.BadParameter(str(error), param=param) from error

        more["callback"] = callback
    return click.Option([f"--{row.name.replace('_', '-')}"], **{**more, "default": default})


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: str | None) -> None:
    """Print the version; with `--version=raw` all that is known."""
    if wanted is None or wanted.lower() in {"false", "0"}:
        return
    more = f", Python {platform.python_version()}, {platform.machine()}"
    click.echo(f"gpumanager {__version__}{more if wanted == 'raw' else ''}")
    context.exit()


DRIVER: Final = click.Option(
    ["--driver"],
    type=click.Choice(("nvidia",)),
    default="nvidia",
    expose_value=False,
    help="Kind of GPUs; there is only one.",
)


@click.command(
    "agent",
    cls=Flags,
    params=[DRIVER, *(option_of(one) for one in fields(AgentSettings) if one.metadata)],
)
@click.option(
    "--extra-config", type=Path, help="JSON file with additional device nodes for every container."
)
@click.option(
    "--incluster-mode", **BOOLEAN, help="Use the pod's service account and ignore --kubeconfig."
)
@click.option(
    "--cgroup-driver",
    type=click.Choice(("cgroupfs", "systemd")),
    expose_value=False,
    help="Accepted, not used: the agent sees it in the names of cgroups.",
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
    asyncio.run(serve(read_settings(flags)))


def take_log_flags(flags: dict[str, Any]) -> LogFlags:
    """Take the flags of the log out of `flags`."""
    modules, threshold = flags.pop("modules"), flags.pop("threshold")
    names = ("level", "format", "directory", "to_stderr", "also_to_stderr", "line")
    given = {name: flags.pop(name) for name in names}
    return LogFlags(modules=parse_modules(modules), threshold=parse_threshold(threshold), **given)


def read_settings(flags: Mapping[str, Any]) -> AgentSettings:
    """Return the settings; raises InputError."""
    given = {name: value for name, value in flags.items() if value is not None}
    if not given.get("hostname_override"):
        given.pop("hostname_override", None)
    if given.pop("incluster_mode"):
        given.pop("kubeconfig", None)
    extra = given.pop("extra_config", None)
    return AgentSettings(**given, extra_devices=read_extra_config(extra) if extra else ())


def read_extra_config(path: Path) -> tuple[str, ...]:
    """Read the device paths of `{"default": {"devices": [path, …]}}`; raises InputError."""
    content = read_json(path)
    entry = content.get("default", {}) if isinstance(content, dict) else None
    devices = entry.get("devices", []) if isinstance(entry, dict) else None
    if not isinstance(devices, list) or not all(isinstance(one, str) for one in devices):
        raise InputError(path, 'write {"default": {"devices": ["/dev/…"]}}')
    return tuple(devices)
