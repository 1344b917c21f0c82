"""The flags of logging that agent, extender and webhook have in common."""

from typing import Final

import click

from gpumanager.cli.logs import FORMATS

log_level_option: Final = click.option(
    "-v",
    "--v",
    "level",
    metavar="LEVEL",
    type=int,
    default=0,
    help="Log level, as klog has it; from 4 on everything is logged.",
)
log_format_option: Final = click.option(
    "--log-format",
    "format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    help="Format of log lines: text, or a JSON object on each line.",
)
