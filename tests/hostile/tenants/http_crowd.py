"""A crowd of connections to a port of the node, each of which comes back when it is let go.

    http_crowd.py PORT COUNT KIND

idle: they say nothing. head: a request whose head never ends, a byte now and then. body: a request
with a body of which next to nothing comes. deaf: they ask, and take no answer.
"""

import asyncio
import sys
from collections import Counter

FIRST = {
    "idle": b"",
    "head": b"GET /metrics HTTP/1.1\r\nX: ",
    "body": b"POST /metrics HTTP/1.1\r\nHost: node\r\nContent-Length: 100000\r\n\r\n",
    "deaf": b"GET /api/node HTTP/1.1\r\nHost: node\r\n\r\n",
}


made: Counter[str] = Counter()


async def hold(port: int, kind: str, source: str, come: asyncio.Event) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(source, 0), limit=1
            )
            come.set()
            made[kind] += 1
            writer.write(FIRST[kind])
            while kind in ("head", "body"):
                await asyncio.sleep(1)
                writer.write(b"x")
                await writer.drain()
            if kind == "deaf":
                await asyncio.sleep(30)
            await reader.read(1)
            writer.close()
        except OSError:
            await asyncio.sleep(0.05)


async def main(port: int, count: int, kind: str) -> None:
    come = [asyncio.Event() for _ in range(count)]
    sources = [f"127.0.0.{2 + number % 8}" for number in range(count)]
    async with asyncio.TaskGroup() as holding:
        for source, one in zip(sources, come, strict=True):
            holding.create_task(hold(port, kind, source, one))
        await asyncio.gather(*(one.wait() for one in come))
        print(f"{count} {kind} connections", flush=True)
        while True:
            await asyncio.sleep(5)
            print(f"{made[kind]} connections made", flush=True)


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
