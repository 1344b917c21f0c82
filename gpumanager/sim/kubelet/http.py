"""The kubelet's `/pods` over HTTP, on a free port of the loopback."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from gpumanager.http_server import BoundedServer
from gpumanager.sim.kubelet.pods import SimulatedPodList


class PodsServer:
    """Answers GET /pods with what `pods` returns at that moment.

    token: a caller without it is not authenticated; None: no token is needed. allowed: whether an
    authenticated caller may read pods, which a kubelet asks the API server about. answering: if
    cleared, no request is answered.
    """

    def __init__(self, pods: Callable[[], SimulatedPodList]) -> None:
        self._pods = pods
        self._server: BoundedServer | None = None
        self.port = 0
        self.requests = 0
        self.token: str | None = None
        self.allowed = True
        self.answering = asyncio.Event()
        self.answering.set()

    async def start(self) -> None:
        """Listen; the port stays the same over a restart."""
        self._server = BoundedServer(self._answer)
        self.port = await self._server.start("127.0.0.1", self.port)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        self.answering.set()
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        await self.answering.wait()
        bearer = request.headers.get("Authorization")
        if self.token is not None and bearer != f"Bearer {self.token}":
            return web.Response(status=401, text="Unauthorized")
        if not self.allowed:
            return web.Response(status=403, text="Forbidden")
        if request.method == "GET" and request.path.rstrip("/") == "/pods":
            self.requests += 1
            return web.json_response(self._pods().as_json())
        return web.Response(status=404, text="404 page not found\n")
