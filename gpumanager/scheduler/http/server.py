"""Routes by path and method; a request that cannot be served gets a status and one sentence.

`gpumanager.http_server` limits connections; this module limits the bodies of requests, and says
which client certificates are accepted. A client without a certificate passes the TLS handshake,
because the kubelet's probes have none; the path decides then. A certificate that no configured CA
has signed fails the handshake.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gpumanager.http_server import BoundedServer, ConnectionBounds

log = logging.getLogger(__name__)

JSON: Final = "application/json"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
CLOSE: Final = {"Connection": "close"}
LATER: Final = {"Retry-After": "1"}
BODIES: Final = ("POST", "PUT", "PATCH")
PROBES: Final = frozenset({"/healthz", "/readyz", "/version"})

Page = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]]
"""Answers a request with this body. Raises HttpRefusal."""
Routes = Mapping[str, Mapping[str, Page]]
"""By path, then by method. A path that ends in a slash stands for all that begin with it; `/` for
itself alone."""


@dataclass(frozen=True, slots=True)
class Bounds(ConnectionBounds):
    """body: bytes of one request. bodies: bytes of all that are read or answered at once.
    body_seconds: for a body to come."""

    body: int = 16 << 20
    bodies: int = 64 << 20
    body_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Clients:
    """names: common names, or DNS names, of which a caller's certificate has one; empty: any that
    the authority has signed. pages: whether any client may read, and only decisions need a
    certificate.
    """

    names: frozenset[str] = frozenset()
    pages: bool = False

    def admits(self, request: web.BaseRequest) -> bool:
        """Return whether the request needs no certificate, or its caller has one of these."""
        if request.method in {"GET", "HEAD"} and (self.pages or request.path in PROBES):
            return True
        certificate = request.transport and request.transport.get_extra_info("peercert")
        if not certificate:
            return False
        pairs = [pair for pairs in certificate.get("subject", ()) for pair in pairs]
        pairs += certificate.get("subjectAltName", ())
        names = {name for kind, name in pairs if kind in {"commonName", "DNS"}}
        return not self.names or not self.names.isdisjoint(names)


class HttpRefusal(Exception):
    """The request is answered with this status."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class HttpServer(BoundedServer):
    """Serves `routes`. clients: which client certificates are accepted; None: none is needed.
    Needs a running loop."""

    def __init__(
        self, routes: Routes, bounds: Bounds | None = None, clients: Clients | None = None
    ) -> None:
        self._bodies = bounds or Bounds()
        super().__init__(self._respond, self._bodies)
        self._clients = clients
        self._routes = routes
        self.reading = 0
        """Bytes that are kept for the bodies now being read or answered."""

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        held = 0
        try:
            if self._clients is not None and not self._clients.admits(request):
                return refusal(403, "show a client certificate that this server knows", **CLOSE)
            page = self._find_page(request)
            held = self._reserve_body(request)
            return await page(request, await self._read_body(request) if held else b"")
        except HttpRefusal as error:
            return refusal(error.status, str(error), **error.headers)
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            return refusal(500, f"internal error: {type(error).__name__}", **CLOSE)
        finally:
            self.reading -= held

    def _find_page(self, request: web.BaseRequest) -> Page:
        path = request.path
        pages = self._routes.get(path)
        if pages is None:
            prefixes = (one for one in self._routes if one.endswith("/") and one != "/")
            prefix = next((one for one in prefixes if path.startswith(one)), None)
            if prefix is None:
                raise HttpRefusal(404, f"there are: {' '.join(self._routes)}")
            pages = self._routes[prefix]
        page = pages.get("GET" if request.method == "HEAD" else request.method)
        if page is None:
            allowed = ", ".join(pages)
            raise HttpRefusal(405, f"{path}: send {allowed}", Allow=allowed)
        return page

    def _reserve_body(self, request: web.BaseRequest) -> int:
        """Reserve the bytes of its body until it is answered; raises HttpRefusal."""
        if request.method not in BODIES:
            return 0
        declared, most = request.content_length, self._bodies.body
        if declared is not None and declared > most:
            raise HttpRefusal(413, f"{declared} bytes; the most is {most}", **CLOSE)
        share = most if declared is None and request.body_exists else declared or 0
        if self.reading + share > self._bodies.bodies:
            raise HttpRefusal(503, "too many large requests at once", **LATER, **CLOSE)
        self.reading += share
        return share

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        """Return the whole body, within the bounds."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._bodies.body_seconds):
                if request.headers.get("Expect", "").lower() == "100-continue":
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    request.writer.output_size = 0
                async for piece in request.content.iter_any():
                    body += piece
                    if len(body) > self._bodies.body:
                        raise HttpRefusal(413, f"more than {self._bodies.body} bytes", **CLOSE)
        except TimeoutError:
            late = "the request did not come to its end in time"
            raise HttpRefusal(408, late, **CLOSE) from None
        except (web.RequestPayloadError, ConnectionError):
            raise HttpRefusal(400, "the body ends before its length", **CLOSE) from None
        return bytes(body)


def page_of(respond: Callable[[], web.Response]) -> Page:
    """Return the page for a response that depends on nothing in its request."""

    async def answer(_request: web.BaseRequest, _body: bytes) -> web.Response:
        return respond()

    return answer


def plain(text: str) -> web.Response:
    return web.Response(text=f"{text}\n")


def metrics(text: bytes) -> web.Response:
    return web.Response(body=text, headers={"Content-Type": METRICS})


def refusal(status: int, message: str, **headers: str) -> web.Response:
    """Return the message in the field that kube-scheduler reads."""
    body = json.dumps({"Error": message}).encode()
    return web.Response(status=status, body=body, headers={"Content-Type": JSON, **headers})
