"""`gpumanager top`: which container has which GPU, what it uses of it, and how long it waits; live.

The agent of a node is asked for its document again and again. At a terminal the picture is alive;
anywhere else, and with --once, it is printed.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path

import click

from gpumanager.cli.flags import authority_option, extender_option
from gpumanager.cli.node_agents import (
    AgentUnavailable,
    agents_option,
    check,
    get,
    json_object,
    list_nodes,
)
from gpumanager.cli.output.console import OutputConsole
from gpumanager.cli.output.top_app import Look, watch
from gpumanager.errors import GpuManagerError
from gpumanager.view.drawing import table
from gpumanager.view.figures import ASCII, glyphs
from gpumanager.view.listing import Sort
from gpumanager.view.node import NodeView, NotAnAgent, Seen, read_node

SORTS = {"gpu": Sort.PLACE, **{one.name.lower(): one for one in Sort if one is not Sort.PLACE}}
WITHOUT_TERMINAL = 100
EXTENDER_SECONDS = 10.0
PER_PAGE = 100


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
    again: Look = partial(list_nodes, agents)
    if cluster:
        again = partial(list_cluster_nodes, extender, authority)
    nodes = again(())
    away = (AgentUnavailable(one.agent, one.trouble) for one in nodes if one.trouble)
    trouble = next(away, None)
    if trouble and all(one.trouble for one in nodes):
        raise trouble
    signs = ASCII if plain else glyphs(os.environ, sys.stdout.encoding)
    if in_json:
        click.echo(json.dumps({"nodes": [one.as_json() for one in nodes]}, indent=2))
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


def list_cluster_nodes(
    url: str, authority: Path | None, before: Sequence[Seen] = ()
) -> tuple[Seen, ...]:
    """Return every node now; where the extender does not answer, those there were before, as away.

    Raises InputError for a URL that is none, GpuManagerError where nothing was seen before.
    """
    check(url, "--extender")
    try:
        nodes = _list_nodes(url, authority)
    except GpuManagerError as error:
        if not before:
            raise
        return tuple(Seen(one.agent, one.node, one.at, str(error)) for one in before)
    now = time.monotonic()
    return tuple(Seen(f"{url}#{one.node}", one, now) for one in nodes)


def _list_nodes(url: str, authority: Path | None) -> list[NodeView]:
    found: list[NodeView] = []
    page, pages = 0, 1
    while page < pages:
        page += 1
        path = f"/api/cluster?per_page={PER_PAGE}&page={page}"
        try:
            status, body = get(url, path, seconds=EXTENDER_SECONDS, authority=authority)
        except GpuManagerError as error:
            raise GpuManagerError(
                f"{url}: cannot ask the extender: {error}; set its address: --extender URL"
            ) from error
        if status != HTTPStatus.OK:
            raise GpuManagerError(f"{url}: the extender answered {status}")
        document = json_object(body)
        try:
            version, pages = str(document["version"]), int(document["pages"])
            found += [read_node(one, version) for one in document["nodes"]]
        except (KeyError, TypeError, ValueError, NotAnAgent) as error:
            raise GpuManagerError(
                f"{url}: answers, but not as this version's extender does"
            ) from error
    return found
