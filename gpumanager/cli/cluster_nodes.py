"""All nodes of a cluster, asked of its extender."""

import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

from gpumanager.cli.http_query import BROKEN, cause, check, get
from gpumanager.errors import GpuManagerError
from gpumanager.view.cluster import read_cluster
from gpumanager.view.values import NodeView, Seen

EXTENDER_SECONDS: Final = 10.0
PER_PAGE: Final = 100


def look_at_cluster(
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
    return tuple(Seen(f"{url}#{one.name}", one, now) for one in nodes)


def _list_nodes(url: str, authority: Path | None) -> list[NodeView]:
    found: list[NodeView] = []
    page, pages = 0, 1
    while page < pages:
        page += 1
        path = f"/api/cluster?per_page={PER_PAGE}&page={page}"
        try:
            status, body = get(url, path, seconds=EXTENDER_SECONDS, authority=authority)
        except BROKEN as error:
            why = cause(error, EXTENDER_SECONDS)
            raise GpuManagerError(
                f"{url}: cannot ask the extender: {why}; set its address: --extender URL"
            ) from error
        if status != HTTPStatus.OK:
            raise GpuManagerError(f"{url}: the extender answered {status}")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise GpuManagerError(f"{url}: the answer is not JSON") from error
        try:
            nodes, pages = read_cluster(document)
        except (KeyError, TypeError, ValueError) as error:
            raise GpuManagerError(
                f"{url}: answers, but not as this version's extender does"
            ) from error
        found += nodes
    return found
