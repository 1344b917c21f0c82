"""An API server of before ResourceSlices, which does not answer while the agent starts."""

import asyncio
from contextlib import suppress
from typing import Any, cast

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.node_status.manager_watch import SLICES, ManagerWatch
from gpumanager.node_status.service import NodeCluster
from tests.histories.history_loop import HistoryLoop


class OldServer:
    def __init__(self) -> None:
        self.away = True
        self.asked = 0
        """How often for ResourceSlices, since it answers."""

    async def list(self, path: str, _take: object, **_query: object) -> Any:
        if self.away:
            raise ApiUnavailable("away")
        if path == SLICES:
            self.asked += 1
            raise ApiRefused(f"GET {path}", 404, "NotFound", "no such resource")
        return {}


def test_it_is_asked_for_slices_once_after_it_was_away() -> None:
    server = OldServer()

    async def withdraw(_gpus: object) -> None: ...

    async def watched() -> None:
        clock = asyncio.get_running_loop().time
        cluster = NodeCluster(cast("KubeClient", server), "n", clock=clock)
        watch = ManagerWatch(cluster, lambda: (), withdraw, 300.0)
        await watch.first()
        server.away = False
        with suppress(TimeoutError):
            async with asyncio.timeout(2.5):  # the first pauses of an informer are shorter
                await watch.run()

    with asyncio.Runner(loop_factory=HistoryLoop) as runner:
        runner.run(watched())

    assert server.asked == 1
