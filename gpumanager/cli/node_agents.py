"""The agents of one or several nodes, asked over HTTP: all at once, each for some seconds."""

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import click

from gpumanager.doctor.question import DoctorQuestion, Unseen
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.view.node import NodeView, Seen, read_node

MOST_BYTES: Final = 16 << 20
DEFAULT: Final = "http://localhost:5678"
AGENT_SECONDS: Final = 4.0


def check(url: str, flag: str) -> str:
    """Return the URL, where it is one of a server; raises InputError, which names the flag."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise InputError(flag, f"{url!r}: write http://HOST:PORT or https://HOST:PORT")
    return url


def get(
    url: str, path: str, *, seconds: float = AGENT_SECONDS, authority: Path | None = None
) -> tuple[int, bytes]:
    """Return status and body. authority: the CA of the server; None: those of the system.

    Not from within a running loop. Raises GpuManagerError, with the cause alone.
    """

    async def ask() -> tuple[int, bytes]:
        tls = ssl.create_default_context(cafile=authority) if url.startswith("https:") else True
        body = bytearray()
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession(headers={"Accept-Encoding": "identity"}) as session,
            session.get(url.rstrip("/") + path, ssl=tls, allow_redirects=False) as answer,
        ):
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
            return answer.status, bytes(body)

    try:
        return asyncio.run(ask())
    except TimeoutError as error:
        raise GpuManagerError(f"no answer within {seconds:g} s") from error
    except (OSError, ValueError, aiohttp.ClientError) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        number = getattr(error, "errno", None) or 0
        if number > 0 and not isinstance(error, aiohttp.ClientSSLError):  # its own is OpenSSL's
            said = os.strerror(number)
        raise GpuManagerError(said) from error


def json_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object; empty where that is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


ADVICE: Final = (
    "run it on the node or in the agent's pod, or say where the agent serves: "
    "--agent http://HOST:PORT (its --query-addr and --query-port)"
)


class AgentUnavailable(GpuManagerError):
    """An agent could not be asked: where, why, and what to do."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"{url}: cannot ask the agent: {cause}; {ADVICE}")


agents_option: Final = click.option(
    "--agent",
    "agents",
    metavar="URL",
    multiple=True,
    default=[DEFAULT],
    show_default=True,
    envvar="GPUMANAGER_AGENT",
    show_envvar=True,
    callback=lambda _context, _parameter, urls: tuple(
        dict.fromkeys(check(url.rstrip("/"), "--agent") for url in urls)
    ),
    help="URL of a node's agent. Repeatable, for several nodes.",
)


def fetch(url: str, path: str) -> bytes:
    """Return what an agent serves there; raises GpuManagerError, with the cause alone."""
    status, body = get(url, path)
    if status == HTTPStatus.NOT_FOUND:
        raise GpuManagerError(f"has no {path}: is it an agent, and as new as this command?")
    if status != HTTPStatus.OK:
        said = body[:200].decode("utf-8", "replace").strip()
        raise GpuManagerError(f"answered {status}: {said}")
    return body


def fetch_node(url: str) -> NodeView:
    """Return its node; raises GpuManagerError, with the cause alone."""
    return read_node(json_object(fetch(url, "/api/node")))


def list_nodes(
    agents: Sequence[str],
    before: Sequence[Seen] = (),
    clock: Callable[[], float] = time.monotonic,
    ask: Callable[[str], NodeView] = fetch_node,
) -> tuple[Seen, ...]:
    """Return every agent's node now; the previous picture of one that does not answer."""
    known = {one.agent: one for one in before}
    questions = [(url, DoctorQuestion(partial(ask, url), AGENT_SECONDS + 1)) for url in agents]
    found = []
    for url, question in questions:
        answer, old = question.answer(), known.get(url, Seen(url))
        if isinstance(answer, Unseen):
            found.append(Seen(url, old.node, old.at, answer.cause))
        else:
            found.append(Seen(url, answer, clock()))
    return tuple(found)
