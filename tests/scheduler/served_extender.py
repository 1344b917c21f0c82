"""An extender over HTTP that follows a simulated API server, and who calls it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession

from gpumanager.scheduler.extender.server import ExtenderServer
from gpumanager.scheduler.extender.service import Extender
from gpumanager.scheduler.http.server import Bounds
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import client_of
from tests.waiting import until

SECONDS = 120.0


class Served:
    """An extender over HTTP, and who calls it."""

    def __init__(
        self, api: SimulatedApiServer, extender: Extender, server: ExtenderServer, port: int
    ) -> None:
        self.api = api
        self.extender = extender
        self.server = server
        self.port = port
        self.session = ClientSession(f"http://127.0.0.1:{port}")

    async def post(self, path: str, body: Any) -> Any:
        """The answer; fails where it is no success."""
        async with self.session.post(path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(path) as answer:
            return answer.status, await answer.text()

    async def make(self, resource: str, item: Any) -> Any:
        return await self.api.create(resource, item)

    async def bind(self, pod: Any, node: str) -> str:
        """The error, if there is one."""
        said = pod["metadata"]
        names = {"PodName": said["name"], "PodNamespace": said["namespace"], "PodUID": said["uid"]}
        answer = await self.post("/scheduler/bind", {**names, "Node": node})
        return str(answer["Error"])

    def pod(self, name: str) -> Any:
        return self.api.objects.get(Key("pods", "default", name))


@asynccontextmanager
async def serving(
    api: SimulatedApiServer, bounds: Bounds | None = None, **more: Any
) -> AsyncIterator[Served]:
    extender = Extender(client_of(api), **more)
    server = ExtenderServer(extender, bounds)
    port = await server.start("127.0.0.1", 0)
    following = asyncio.create_task(extender.run())
    served = Served(api, extender, server, port)
    try:
        await until(lambda: not extender.missing)
        yield served
    finally:
        await served.session.close()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await server.stop()
