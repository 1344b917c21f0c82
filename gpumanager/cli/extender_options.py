"""Options of commands that ask the extender: where it listens, and whose certificate it has."""

from pathlib import Path
from typing import Final

import click

DEFAULT_URL: Final = "http://127.0.0.1:3456"
CHART_CA: Final = Path("/etc/gpu-manager/tls/ca.crt")
"""Where the chart mounts it in the extender's pods."""


def _or_the_chart_s(
    _context: click.Context, _parameter: click.Parameter, value: Path | None
) -> Path | None:
    return value or (CHART_CA if CHART_CA.is_file() else None)


extender_option = click.option(
    "--extender",
    metavar="URL",
    default=DEFAULT_URL,
    show_default=True,
    envvar="GPUMANAGER_EXTENDER",
    show_envvar=True,
    help="URL of `gpumanager extender`, best of the leader: it knows most.",
)
authority_option = click.option(
    "--ca-file",
    "authority",
    type=click.Path(path_type=Path),
    callback=_or_the_chart_s,
    help=f"CA of the extender's certificate; by default {CHART_CA} if it exists, else the "
    "system's CAs.",
)
