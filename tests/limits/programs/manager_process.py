"""A virtual manager in a process of its own, to be killed: `python manager_process.py ROOT NAME…`.

Prints `ready` when every allocation is open.
"""

import asyncio
import sys
from pathlib import Path

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes

GPU = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0")
LIMIT = Limit(GPU, memory=Bytes(GIB), cores=30, ceiling=30)


async def serve(root: Path, names: list[str]) -> None:
    sockets = VirtualManager(root, turns=Turns(root / "turns"))
    for name in names:
        await sockets.open(AllocationID(name), [LIMIT])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2:]))
