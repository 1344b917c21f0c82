"""A test as a measured process of a container, and a driver that tells what it is told to."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from tests.limits.programs.hello_client import Answer, Regions, connect, hello, receive
from vcuda_shim._shim import lib

NAME = AllocationID("a1")
GPU = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0")
OTHER = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a1")
WHOLE = Limit(GPU, Bytes(GIB), 100, 100)
MEASURE = hello(flags=lib.VCUDA_HELLO_MEASURE)


class Driver:
    """Tells what it is told to; `pid` is this test's own."""

    def __init__(self) -> None:
        self.held: dict[GpuUUID, dict[int, Bytes | None]] = {GPU: {}}
        self.passes = 0
        self.asked_about: list[frozenset[GpuUUID]] = []
        self.broken = False
        self.hanging = False
        """A GPU is left out, because it does not answer."""
        self.meanwhile: Any = lambda: None

    def __call__(self, gpus: Collection[GpuUUID]) -> Mapping[GpuUUID, Mapping[int, Bytes | None]]:
        self.passes += 1
        self.asked_about.append(frozenset(gpus))
        self.meanwhile()
        if self.broken:
            raise GpuManagerError("no driver")
        return self.held


class Process:
    """This test as a process of the container."""

    def __init__(self, manager: VirtualManager, directory: Path) -> None:
        self.manager, self.socket = manager, directory / "vcuda.sock"
        self.slot = -1
        self.regions: Regions | None = None

    @classmethod
    async def of(cls, manager: VirtualManager, name: str = NAME, *, seated: bool = True) -> Self:
        """In a container that has the whole GPU."""
        made = cls(manager, await manager.open(AllocationID(name), [WHOLE]))
        if seated:
            await made.attach()
        return made

    def move_memory(self) -> None:
        """Begin and end a call that does."""
        self.books.activity[self.slot] += lib.VCUDA_ACTIVITY_BEGUN

    async def say(self, message: bytes) -> Answer:
        def exchange() -> Answer:
            with connect(self.socket) as connection:
                connection.sendall(message)
                answer = receive(connection)
                assert answer is not None
                return answer

        return await asyncio.to_thread(exchange)

    async def attach(self) -> None:
        answer = await self.say(hello())
        self.slot, self.regions = answer.slot, Regions.of(answer)
        answer.close()

    async def measure(self) -> int:
        """The status of the WELCOME."""
        answer = await self.say(MEASURE)
        answer.close()
        return answer.status

    @property
    def books(self) -> Any:
        assert self.regions is not None
        return self.regions.books

    @property
    def overhead(self) -> int:
        return int(self.books.overhead[0][self.slot])

    def overheads(self) -> set[int]:
        """Of all processes of the container."""
        return set(map(int, self.books.overhead[0]))

    def context_size(self) -> int:
        assert self.regions is not None
        return int(self.regions.config.limits[0].context_bytes)
