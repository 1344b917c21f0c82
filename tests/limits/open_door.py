"""One allocation with its door open, and words for what its manager then says."""

import asyncio
from pathlib import Path
from typing import Any

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.legacy.sockets import LegacySockets
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from tests.limits.metered_manager import MeteredManager
from tests.limits.programs.hello_client import Answer, exchange, hello

GPU = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0")
NAME = AllocationID("a1")


def limit(memory: int = GIB) -> Limit:
    return Limit(GPU, memory=Bytes(memory), cores=30, ceiling=30)


LEGACY = ("resident", "neighbours", "names", "driver", "call_seconds")


def virtual_manager(root: Path, **options: Any) -> MeteredManager:
    """Its containers find their turns below `root`, too; gpu-client is answered."""
    for_gpu_client = {name: options.pop(name) for name in LEGACY if name in options}
    sockets = LegacySockets(root, peers=options.get("peers"), **for_gpu_client)
    options = {"legacy": sockets, **options}
    return MeteredManager(root, turns=Turns(root / "turns"), **options)


def pids(sockets: VirtualManager) -> set[int]:
    return {process.pid for process in sockets.usage(NAME).processes}


def held(sockets: VirtualManager) -> int:
    return sockets.usage(NAME).devices[0].held


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def say(path: Path, message: bytes | None = None) -> Answer | None:
    """HELLO of this very process."""
    return await asyncio.to_thread(exchange, path, hello() if message is None else message)
