"""An extender that decides nothing: it shows what the protocol alone costs in Python.

It answers filter with the names it was sent, and prioritize with no scores.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from extender.process import Process

VERBS: Final = ("filter", "prioritize")
NAMES: Final = b'"NodeNames":['
LENGTH: Final = b"Content-Length: "


class EmptyExtender(asyncio.Protocol):
    """One connection of kube-scheduler, which sends one request after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, between, body = bytes(self._received).partition(b"\r\n\r\n")
        if not between:
            return
        length = int(head.partition(LENGTH)[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        del self._received[: len(head) + len(between) + length]
        said = b"[]" if head.startswith(b"POST /scheduler/prioritize") else _filtered(body)
        self._transport.write(b"HTTP/1.1 200 OK\r\n%s%d\r\n\r\n%s" % (LENGTH, len(said), said))


def _filtered(body: bytes) -> bytes:
    start = body.index(NAMES)
    return b"{%s}" % body[start : body.index(b"]", start) + 1]


@contextlib.contextmanager
def extender() -> Iterator[Process]:
    folder = Path(__file__).parent.parent
    started = subprocess.Popen(
        [sys.executable, "-m", "extender.empty"], cwd=folder, stdout=subprocess.PIPE
    )
    try:
        assert started.stdout
        yield Process(started.pid, int(started.stdout.readline()), 0.0)
    finally:
        started.kill()
        started.communicate()


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(EmptyExtender, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
