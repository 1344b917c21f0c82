"""What the flags of several commands have in common.

gpu-manager's way to write them (`--share_mode=true`), durations, logging, objects in a namespace,
and where the extender listens. It imports nothing of the node agent: control-plane commands use it.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from gpumanager.cli.logs import FORMATS

BOOLEAN: Final[Mapping[str, Any]] = {
    "type": bool,
    "default": False,
    "is_flag": False,
    "flag_value": True,
}
"""A flag as Go has it: `--name`, `--name=true`, `--name=false`."""


_EMPTY: Final = re.compile(r"--[a-z][a-z_-]*=")
_SHORT: Final = re.compile(r"^(-[a-z])=")


class Flags(click.Command):
    """A command that takes `_` for `-` in the names of its flags, as gpu-manager does.

    `--name=` means what leaving it out does.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = []
        for word in args:
            name, equals, value = word.partition("=")
            if not word.startswith("--"):
                given.append(_SHORT.sub(r"\1", word, count=1))  # `-v=4` as `-v4`
            elif not _EMPTY.fullmatch(word):
                given.append(name.replace("_", "-") + equals + value)
        return super().parse_args(ctx, given)


_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
"""Of a Go duration, as `1m30s` has two."""


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, greater than 0. gpu-manager has numbers for some flags, Go durations for others."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            rest = _PART.sub("", str(value))
            parts = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(str(value)))
            seconds = parts if not rest else float(value)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is not a time; write for example 30s", param, ctx)
        return seconds


DURATION: Final = Duration()


def shown(seconds: float) -> str:
    """Write seconds as a default is written: `5s`, `1m30s`, `200ms`."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, rest = divmod(seconds, 60)
    return (f"{minutes:g}m" if minutes else "") + (f"{rest:g}s" if rest or not minutes else "")


log_level_option: Final = click.option(
    "-v",
    "--v",
    "level",
    metavar="LEVEL",
    type=int,
    default=0,
    help="Log verbosity, as in klog; 4 and above log everything.",
)
log_format_option: Final = click.option(
    "--log-format",
    "format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    help="Format of log lines: text, or a JSON object on each line.",
)


def namespaced(_ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, str]:
    """Return namespace and name of NAMESPACE/NAME; raises BadParameter."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"{text!r}: write NAMESPACE/NAME", param=parameter)
    return namespace, name


def namespaced_or_none(
    context: click.Context, parameter: click.Parameter, text: str
) -> tuple[str, str] | None:
    """Return the same; None for `none`."""
    return None if text == "none" else namespaced(context, parameter, text)


quota_configmap: Final = partial(
    click.option,
    "--quota-configmap",
    "quota",
    default="kube-system/gpuquota",
    callback=namespaced_or_none,
    show_default=True,
    metavar="NAMESPACE/NAME|none",
)
"""Where quotas are written down: the extender, which holds them, and the webhook, which warns of
them, look at the same place. Takes `help`."""


DEFAULT_URL: Final = "http://127.0.0.1:3456"
CHART_CA: Final = Path("/etc/gpu-manager/tls/ca.crt")
"""Where the chart mounts it in the extender's pods."""


extender_option = click.option(
    "--extender",
    metavar="URL",
    default=DEFAULT_URL,
    show_default=True,
    envvar="GPUMANAGER_EXTENDER",
    show_envvar=True,
    help="URL of `gpumanager extender`, best of the leader, which knows most.",
)
authority_option = click.option(
    "--ca-file",
    "authority",
    type=click.Path(path_type=Path),
    callback=lambda _context, _parameter, value: (
        value or (CHART_CA if CHART_CA.is_file() else None)
    ),
    help=f"CA of the extender's certificate; by default {CHART_CA} if it exists, else the "
    "system's CAs.",
)
