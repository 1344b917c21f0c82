"""`gpumanager probe healthz --socket PATH`: what the kubelet runs in the agent's container.

It imports next to nothing, aiohttp least of all: it is started every few seconds for as long as the
node lives.
"""

import http.client
import socket
from http import HTTPStatus
from pathlib import Path
from typing import Final

import click

from gpumanager.errors import GpuManagerError

WORD_SECONDS: Final = 4.0
"""For each word; the kubelet has a bound of its own for the whole."""
MOST_BYTES: Final = 64 << 10


class Unwell(GpuManagerError):
    """What the agent says of itself, or why it does not."""


@click.command("probe")
@click.argument("page", type=click.Choice(["healthz", "readyz"]))
@click.option("--socket", "path", type=Path, required=True, help="The agent's --probe-socket.")
def command(page: str, path: Path) -> None:
    """Print the agent's answer. Fails unless its status is 200."""
    agent = _Agent(path)
    try:
        agent.request("GET", f"/{page}")
        answer = agent.getresponse()
        said = answer.read(MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise Unwell(f"{path}: {error.strerror or error}") from error
    except http.client.HTTPException as error:
        raise Unwell(f"{path}: no answer ({type(error).__name__})") from error
    finally:
        agent.close()
    if answer.status != HTTPStatus.OK:
        raise Unwell(said or f"{path}: status {answer.status}")
    click.echo(said)


class _Agent(http.client.HTTPConnection):
    """Over its unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("agent", timeout=WORD_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WORD_SECONDS)
        self.sock.connect(str(self._path))
