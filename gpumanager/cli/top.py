"""`gpumanager top`: which container has which GPU, what it uses of it, and how long it waits; live.

The agent of a node is asked for its metrics again and again. At a terminal the picture is alive;
anywhere else, and with --once, it is printed.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from gpumanager.cli.cluster_nodes import look_at_cluster
from gpumanager.cli.flags import authority_option, extender_option
from gpumanager.cli.node_agents import agents_option, first_trouble, look
from gpumanager.cli.output.console import OutputConsole
from gpumanager.cli.output.top_app import Look, watch
from gpumanager.cli.output.top_text import table
from gpumanager.view.glyphs import ASCII, glyphs
from gpumanager.view.listing import Sort
from gpumanager.view.values import as_json

SORTS = {"gpu": Sort.PLACE, **{one.name.lower(): one for one in Sort if one is not Sort.PLACE}}
WITHOUT_TERMINAL = 100


@click.command("top")
@agents_option
@click.option(
    "--cluster",
    is_flag=True,
    help="Show all nodes of the cluster, from --extender. It knows what is granted, not what is"
    " used.",
)
@extender_option
@authority_option
@click.option("--once", is_flag=True, help="Print the current state once, and exit.")
@click.option("--json", "in_json", is_flag=True, help="Print the current state as JSON, and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between updates; the agent measures once in each --sample-period.",
)
@click.option(
    "--sort",
    type=click.Choice(list(SORTS)),
    default="gpu",
    show_default=True,
    help="Initial order of the rows.",
)
@click.option(
    "--ascii", "plain", is_flag=True, help="Draw with ASCII characters only, whatever LANG says."
)
def command(
    agents: Sequence[str],
    interval: float,
    sort: str,
    extender: str,
    authority: Path | None,
    *,
    cluster: bool,
    once: bool,
    in_json: bool,
    plain: bool,
) -> None:
    """Show GPUs, the containers on them, what they use and whether they are throttled.

    Press h for help.

    \b
    Examples:
      gpumanager top
      gpumanager top --agent http://node-1:5678 --agent http://node-2:5678
      gpumanager top --cluster
      kubectl gpu top --node NODE
    """
    again: Look = partial(look, agents)
    if cluster:
        again = partial(look_at_cluster, extender, authority)
    nodes = again(())
    trouble = first_trouble(nodes)
    if trouble and all(one.away for one in nodes):
        raise trouble
    signs = ASCII if plain else glyphs(os.environ, sys.stdout.encoding)
    if in_json:
        click.echo(json.dumps({"nodes": [as_json(one) for one in nodes]}, indent=2))
    elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        console = OutputConsole()
        if not console.is_terminal:
            console.width = shutil.get_terminal_size((WITHOUT_TERMINAL, 0)).columns
        for text in table(nodes, SORTS[sort], signs, console.width):
            console.print(text, soft_wrap=True)
    else:
        watch(nodes, interval, SORTS[sort], signs, again)
        return
    if trouble:
        raise trouble
