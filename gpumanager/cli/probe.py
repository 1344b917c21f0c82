"""`gpumanager probe healthz --socket PATH`: what the kubelet runs in the agent's container.

It imports next to nothing: it is started every few seconds for as long as the node lives.
"""

import socket
from pathlib import Path
from typing import Final

import click

from gpumanager.errors import GpuManagerError

SECONDS: Final = 4.0
"""For each word; the kubelet has a bound of its own for the whole."""
MOST_BYTES: Final = 64 << 10


class Unwell(GpuManagerError):
    """What the agent says of itself, or why it does not."""


@click.command("probe")
@click.argument("page", type=click.Choice(["healthz", "readyz"]))
@click.option(
    "--socket", "path", type=Path, required=True, help="The agent's own, of --probe-socket."
)
def command(page: str, path: Path) -> None:
    """Say what the agent answers; fails unless that is 200."""
    try:
        head, _, said = _asked(page, path).partition(b"\r\n\r\n")
    except OSError as error:
        raise Unwell(f"{path}: {error.strerror or error}") from error
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise Unwell(said.decode("utf-8", "replace").strip() or "no answer")
    click.echo(said.decode("utf-8", "replace").strip())


def _asked(page: str, path: Path) -> bytes:
    found = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(path))
        connection.sendall(b"GET /%s HTTP/1.1\r\nHost: agent\r\n\r\n" % page.encode())
        while len(found) < MOST_BYTES and (piece := connection.recv(4096)):
            found += piece
    return found
