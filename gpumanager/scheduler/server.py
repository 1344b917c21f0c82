"""The extender over HTTP: kube-scheduler's verbs, gpu-admission's paths, probes, `/explain`.

aiohttp speaks HTTP; which connections may live how long, and how much may be read at once, is
decided here (decision 0041), because a scheduler must not be kept waiting by who is slow, sends too
much or comes in a crowd. What cannot be understood is answered with a status and one sentence.
"""

import asyncio
import json
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from gpumanager.scheduler import wire
from gpumanager.scheduler.bind import NotBound
from gpumanager.scheduler.metrics import Metrics
from gpumanager.scheduler.name_lists import BadRequest, NameLists
from gpumanager.scheduler.service import Extender, NotReady

log = logging.getLogger(__name__)

JSON: Final = "application/json"
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
BACKLOG: Final = 512
HTTP: Final[Mapping[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": 120.0,
    "lingering_time": 1.0,
}
"""Packed bodies are not unpacked: nobody sends them, and they may be bombs."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """body: bytes of one request. bodies: bytes of all that are read at once. Seconds: for the
    first request of a connection to come, for a body, for a connection to do nothing."""

    body: int = 16 << 20
    bodies: int = 64 << 20
    connections: int = 256
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 120.0


class Refused(Exception):
    """The request is answered with this status."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class Guarded(web.Server):
    """Knows of each connection how long it has been doing nothing, and lets go of it in time."""

    def __init__(self, handler: Any, bounds: Bounds, **more: Any) -> None:
        super().__init__(handler, **more)
        self._bounds = bounds
        self._until: dict[web.RequestHandler, float] = {}

    def __call__(self) -> web.RequestHandler:
        connection = super().__call__()
        if len(self._until) >= self._bounds.connections:
            self._let_go(min(self._until, key=self._until.__getitem__))
        self._until[connection] = time.monotonic() + self._bounds.head_seconds
        return connection

    def busy(self, connection: web.RequestHandler) -> None:
        """Its request is being answered: we are the slow ones now."""
        self._until[connection] = float("inf")

    def idle(self, connection: web.RequestHandler) -> None:
        """It has its answer to read, and may ask again."""
        self._until[connection] = time.monotonic() + self._bounds.idle_seconds

    def sweep(self) -> None:
        """Let go of those whose time is over, and forget those that are gone."""
        now, alive = time.monotonic(), set(self.connections)
        for connection, until in tuple(self._until.items()):
            if connection not in alive:
                if until < now:
                    del self._until[connection]
            elif until < now:
                self._let_go(connection)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._until.pop(handler, None)

    def _let_go(self, connection: web.RequestHandler) -> None:
        self._until.pop(connection, None)
        if connection.transport is not None:
            connection.transport.abort()


Verb = Callable[[bytes], Awaitable[bytes]]
Page = Callable[[], web.Response]


class ExtenderServer:
    """Serves an extender. version: what `/version` says."""

    def __init__(
        self, extender: Extender, bounds: Bounds | None = None, *, version: str = ""
    ) -> None:
        self.metrics = Metrics(lambda: extender.state.counts, lambda: extender.election.leads)
        self._extender = extender
        self._bounds = bounds or Bounds()
        self._reading = 0
        self._lists = NameLists()
        self._server = Guarded(self._answer, self._bounds, **HTTP)
        self._sockets: list[asyncio.Server] = []
        self._verbs: Mapping[str, tuple[str, Verb]] = {
            "/scheduler/predicates": ("filter", self._filter),
            "/scheduler/filter": ("filter", self._filter),
            "/scheduler/prioritize": ("prioritize", self._prioritize),
            "/scheduler/bind": ("bind", self._bind),
            "/scheduler/preempt": ("preempt", self._preempt),
        }
        self._pages: Mapping[str, Page] = {
            "/version": lambda: _plain(version),
            "/healthz": lambda: _plain("ok"),
            "/readyz": self._ready,
            "/metrics": lambda: web.Response(
                body=self.metrics.text(), headers={"Content-Type": PLAIN}
            ),
        }

    async def start(self, address: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port. Raises OSError."""
        server = await asyncio.get_running_loop().create_server(
            self._server,
            address or None,
            port,
            backlog=BACKLOG,
            reuse_address=True,
            ssl=tls,
            ssl_handshake_timeout=self._bounds.head_seconds if tls else None,
        )
        self._sockets.append(server)
        found: tuple[socket.socket, ...] = server.sockets
        return int(found[0].getsockname()[1])

    async def run(self) -> None:
        """Keeps connections within their bounds, for as long as the task lives."""
        while True:
            await asyncio.sleep(min(1.0, self._bounds.head_seconds / 2))
            self._server.sweep()

    async def stop(self) -> None:
        """Take no more, answer what is being answered."""
        for server in self._sockets:
            server.close()
        await self._server.shutdown(timeout=5.0)

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._server.busy(request.protocol)
        try:
            return await self._page(request)
        except Refused as error:
            return _error(error.status, str(error), **error.headers)
        except NotReady as error:
            return _error(503, str(error), **{"Retry-After": "1"})
        except BadRequest as error:
            return _error(400, str(error))
        finally:
            self._server.idle(request.protocol)

    async def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if verb := self._verbs.get(path):
            _only(request, "POST")
            return await self._run(verb[0], verb[1], request)
        _only(request, "GET", "HEAD", path=path)
        if page := self._pages.get(path):
            return page()
        if path.startswith("/explain/"):
            return self._explain(path)
        known = " ".join((*self._verbs, *self._pages, "/explain/NAMESPACE/POD"))
        raise Refused(404, f"there are: {known}")

    async def _run(self, name: str, verb: Verb, request: web.BaseRequest) -> web.Response:
        body = await self._body(request)
        began, outcome = time.perf_counter(), "failed"
        try:
            answer = await verb(body)
            outcome = "answered"
        except BadRequest:
            outcome = "refused"
            raise
        except NotReady:
            raise
        except Exception as error:
            log.exception("%s", request.path)
            raise Refused(500, f"internal error: {type(error).__name__}") from error
        finally:
            self.metrics.took(name, outcome, time.perf_counter() - began)
        response = web.Response(body=answer, headers={"Content-Type": JSON})
        if not self._extender.election.leads:
            response.force_close()  # so that who comes by a Service finds who leads
        return response

    async def _body(self, request: web.BaseRequest) -> bytes:
        """All of it, within the bounds."""
        declared = request.content_length
        if declared is not None and declared > self._bounds.body:
            raise Refused(413, f"{declared} bytes; the most is {self._bounds.body}", **CLOSE)
        share = self._bounds.body if declared is None else declared
        if self._reading + share > self._bounds.bodies:
            raise Refused(503, "too many large requests at once", **{"Retry-After": "1", **CLOSE})
        self._reading += share
        try:
            async with asyncio.timeout(self._bounds.body_seconds):
                return await self._read(request)
        except TimeoutError:
            raise Refused(408, "the request did not come to its end in time", **CLOSE) from None
        finally:
            self._reading -= share

    async def _read(self, request: web.BaseRequest) -> bytes:
        body = bytearray()
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > self._bounds.body:
                raise Refused(413, f"more than {self._bounds.body} bytes", **CLOSE)
        return bytes(body)

    async def _filter(self, body: bytes) -> bytes:
        arguments = wire.read_arguments(body, self._lists)
        found = self._extender.filter(arguments.pod, arguments.names)
        return wire.write_filter(arguments, found.fitting, found.unfit, self._lists)

    async def _prioritize(self, body: bytes) -> bytes:
        arguments = wire.read_arguments(body, self._lists)
        return wire.write_scores(self._extender.prioritize(arguments.pod, arguments.names))

    async def _preempt(self, body: bytes) -> bytes:
        said = wire.read_preempt(body)
        nodes = self._extender.preempt(said.pod, said.victims)
        return wire.write_victims(nodes, said.victims, said.violations)

    async def _bind(self, body: bytes) -> bytes:
        refused = await self._extender.bind(wire.read_bind(body))
        return wire.write_error(refused.message if isinstance(refused, NotBound) else "")

    def _ready(self) -> web.Response:
        if missing := self._extender.missing:
            return _error(503, f"the cluster's {missing} are still being read")
        return _plain("ready, leading" if self._extender.election.leads else "ready, standing by")

    def _explain(self, path: str) -> web.Response:
        words = path.split("/")
        if len(words) != 4:  # noqa: PLR2004
            raise Refused(404, "write /explain/NAMESPACE/POD")
        known = self._extender.memory.of(words[2], words[3])
        if known is None:
            raise Refused(404, f"nothing was asked about pod {words[2]}/{words[3]} lately")
        body = json.dumps({"pod": f"{words[2]}/{words[3]}", **known.as_json()}).encode()
        return web.Response(body=body, headers={"Content-Type": JSON})


CLOSE: Final = {"Connection": "close"}


def _only(request: web.BaseRequest, *methods: str, path: str = "") -> None:
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise Refused(405, f"{path or request.path}: send {allowed}", Allow=allowed)


def _plain(text: str) -> web.Response:
    return web.Response(text=f"{text}\n")


def _error(status: int, message: str, **headers: str) -> web.Response:
    """In the field in which kube-scheduler looks for it."""
    return web.Response(
        status=status, body=wire.write_error(message), headers={"Content-Type": JSON, **headers}
    )
