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
    help="Log verbosity, as in klog; 4 and above log everything.",
)
log_format_option: Final = click.option(
    "--log-format",
    "format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    help="Format of log lines: text, or a JSON object on each line.",
)
