"""The server of extender and webhook reads bodies, and answers all of them or says why not. What
callers may not do to it: test_hostile_http.py; connections: tests/test_bounded_server.py."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gpumanager.scheduler.http.server import Routes
from tests.scheduler.http.served import Served, serving


async def echo(_request: web.BaseRequest, body: bytes) -> web.Response:
    return web.Response(body=body)


async def broken(_request: web.BaseRequest, _body: bytes) -> web.Response:
    raise RuntimeError("no")


ROUTES: Routes = {
    "/echo": {"POST": echo, "GET": echo},
    "/broken": {"POST": broken},
}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(ROUTES) as one:
        yield one


def post(body: bytes = b"", path: str = "/echo", *fields: str) -> bytes:
    """A request as it is on the wire."""
    rows = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*rows, "", ""]).encode() + body


async def test_a_connection_stays_for_one_request_after_another(served: Served) -> None:
    reader, writer = await served.open()

    for body in (b"one", b"", b"x" * 100_000):
        writer.write(post(body))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close" not in head
        assert await reader.readexactly(len(body)) == body
    writer.transport.abort()


async def test_a_body_in_chunks_is_taken(served: Served) -> None:
    fields = b"Transfer-Encoding: chunked\r\nConnection: close"
    words = b"POST /echo HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n\r\n3\r\none\r\n0\r\n\r\n"

    assert (await served.say(words)).endswith(b"\r\n\r\none")


async def test_who_waits_to_be_asked_for_the_body_is_asked(served: Served) -> None:
    reader, writer = await served.open()
    words = post(b"body", "/echo", "Expect: 100-continue", "Connection: close")
    writer.write(words[:-4])

    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert (await reader.read()).endswith(b"\r\n\r\nbody")
    writer.transport.abort()


async def test_a_handler_that_fails_is_500_and_the_next_is_answered(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await served.post("/broken", b""))[0] == 500
    assert (await served.post("/echo", b"x"))[0] == 200
    assert "RuntimeError" in caplog.text
