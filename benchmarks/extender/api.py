"""A stub of the API server, in a process of its own: `python -m extender.api NODES PODS`.

It lists nodes and pods in pages, takes bindings, and tells those who watch pods: of a pod that is
made, and of its binding with the plan that came with it, as a real one does. It prints its port.
What it answers is made of bytes that are ready, so that it costs little beside what is measured.
"""

import asyncio
import json
import re
import sys
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from extender.cluster import bound, encoded, node_object, placed, pod_object

AHEAD: Final = 20
"""So many pods wait to be placed."""
_LENGTH: Final = re.compile(rb"Content-Length: (\d+)", re.IGNORECASE)
_BINDING: Final = re.compile(r"/api/v1/namespaces/default/pods/pod-(\d+)/binding")
_POD: Final = re.compile(r"/api/v1/namespaces/default/pods/pod-(\d+)")


class Api:
    """nodes: how many there are. pods: how many are placed already."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._nodes = [encoded(node_object(number)) for number in range(nodes)]
        self._pods = [encoded(one.object()) for one in placed(nodes, pods)]
        self._watching: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, for as many requests as come."""
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether it goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        target = urlsplit(head.split(b" ", 2)[1].decode())
        query = {key: values[0] for key, values in parse_qs(target.query).items()}
        if query.get("watch") == "true":
            await self._watch(target.path, reader, writer)
            return False
        if binding := _BINDING.fullmatch(target.path):
            self._bind(int(binding[1]), json.loads(body))
            _write(writer, b'{"kind":"Status","status":"Success"}')
        elif waiting := _POD.fullmatch(target.path):
            _write(writer, encoded(pod_object(int(waiting[1]))))
        else:
            _write(writer, self._page(target.path, query))
        await writer.drain()
        return b"Connection: close" not in head

    def _page(self, path: str, query: dict[str, str]) -> bytes:
        rows = {"nodes": self._nodes, "pods": self._pods}.get(path.rpartition("/")[2], [])
        first, limit = int(query.get("continue", "0")), int(query.get("limit", len(rows) or 1))
        last = first + limit
        more = b"" if last >= len(rows) else b',"continue":"%d"' % last
        items = b",".join(rows[first:last])
        return b'{"metadata":{"resourceVersion":"1"%s},"items":[%s]}' % (more, items)

    async def _watch(
        self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if path.endswith("/pods"):
            self._watching.append(writer)
        await reader.read()
        if writer in self._watching:
            self._watching.remove(writer)

    def _bind(self, number: int, binding: Any) -> None:
        notes, node = binding["metadata"]["annotations"], binding["target"]["name"]
        pod = encoded(bound(pod_object(number), node, notes))
        self._pods.append(pod)
        self._tell(b"ADDED", encoded(pod_object(number + AHEAD)))
        self._tell(b"MODIFIED", pod)

    def _tell(self, kind: bytes, item: bytes) -> None:
        event = b'{"type":"%s","object":%s}\n' % (kind, item)
        for writer in self._watching:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))


def _write(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def main(nodes: int, pods: int) -> None:
    server = await asyncio.start_server(Api(nodes, pods).serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
