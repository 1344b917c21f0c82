"""Health of the claimed GPUs, for the pods' statuses: DRAResourceHealth.

Every message is the complete list. The driver sends one at once, one after each change, and one
periodically, because the kubelet considers a GPU unknown after 30 s without a message.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from gpumanager.dra import wire
from gpumanager.dra.api import drahealth_v1_pb2 as pb
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.node import Node
from gpumanager.kube.claims import device_name

REPEAT_SECONDS: Final = 10.0
MESSAGE_LETTERS: Final = 1024
"""Characters of a message."""


class HealthService:
    """cause: why a GPU is out of use, in words. clock: seconds since 1970."""

    def __init__(
        self,
        node: Node,
        pool: str,
        cause: Callable[[GpuUUID], str] = lambda _: "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._pool = pool
        self._cause = cause
        self._clock = clock
        self._changed = asyncio.Event()
        self._stopped = False

    def changed(self) -> None:
        """Send the list again, soon."""
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """End the streams."""
        self._stopped = True
        self.changed()

    async def watch(
        self, _request: pb.NodeWatchResourcesRequest, _context: wire.Context
    ) -> AsyncIterator[pb.NodeWatchResourcesResponse]:
        await self._node.taken_up.wait()
        while not self._stopped:
            changed = self._changed
            yield self.devices()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_SECONDS):
                    await changed.wait()

    def devices(self) -> pb.NodeWatchResourcesResponse:
        """Return all GPUs of the node as they are now, and those that containers hold though they
        are missing: to the kubelet a GPU that is left out is unknown after 30 s."""
        answer = pb.NodeWatchResourcesResponse()
        now, unhealthy = int(self._clock()), self._node.unhealthy
        there = tuple(gpu.uuid for gpu in self._node.topology.gpus)
        for gpu in (*there, *sorted(unhealthy.difference(there))):
            ill = gpu in unhealthy
            answer.devices.add(
                device=pb.DeviceIdentifier(pool_name=self._pool, device_name=device_name(gpu)),
                health=pb.UNHEALTHY if ill else pb.HEALTHY,
                last_updated_time=now,
                message=self._cause(gpu)[:MESSAGE_LETTERS] if ill else "",
            )
        return answer
