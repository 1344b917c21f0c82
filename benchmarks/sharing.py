"""What one look at the turns of a whole node costs the agent.

    python benchmarks/sharing.py [--containers N] [--gpus N] [--rounds N]

The manager is the real one, in this process, which is also the one process of each container: it
hands in samples as a driver has them, six times a second. *busy*: each GPU works; *idle*: none
does. The figures are processor time; the agent looks ten times a second.
"""

import argparse
import asyncio
import os
import resource
import shutil
import socket
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from machine_line import machine_line

from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import TICK_SECONDS, VirtualManager
from gpumanager.limits.pages.books import HINTS_OFFSET
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from vcuda_shim._shim import ffi, lib

TICK = round(TICK_SECONDS * 1e9)
WARM = 60


def say_hello(path: Path) -> None:
    """From now on this is a process of the container, whose shim has its turns open."""
    message: Any = ffi.new("struct vcuda_hello *")
    message.magic, message.version = lib.VCUDA_PROTOCOL_MAGIC, lib.VCUDA_PROTOCOL_VERSION
    message.kind, message.region_abi = lib.VCUDA_HELLO, lib.VCUDA_REGION_ABI
    message.flags = lib.VCUDA_HELLO_OPENS_CONFIG
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(bytes(ffi.buffer(message)))
        _welcome, descriptors, _flags, _address = socket.recv_fds(connection, 128, 2)
    if len(descriptors) != 1:
        raise SystemExit(f"{path}: the manager refused")
    hint = ffi.new("struct vcuda_hint *", {"progress_ns": 1})
    os.pwrite(descriptors[0], bytes(ffi.buffer(hint)), HINTS_OFFSET)
    os.close(descriptors[0])


class Node:
    """Containers spread over GPUs, each with one process."""

    def __init__(self, root: Path, containers: int, gpus: int) -> None:
        self.root, self.containers = root, containers
        self.gpus = [GpuUUID(f"GPU-{uuid.UUID(int=number)}") for number in range(gpus)]
        self.manager = VirtualManager(root, turns=Turns(root / "turns"))
        self.now = time.monotonic_ns()

    async def open(self) -> None:
        cores = max(1, 100 * len(self.gpus) // self.containers)
        for number in range(self.containers):
            gpu = self.gpus[number % len(self.gpus)]
            limit = Limit(gpu, Bytes(GIB), cores, 100)
            directory = await self.manager.open(AllocationID(f"c{number}"), [limit])
            await asyncio.to_thread(say_hello, directory / "vcuda.sock")

    def answers(self, tick: int) -> UtilizationByGpu:
        """Three in five looks bring something new."""
        if tick % 5 >= 3:
            return {}
        percent = 100 * len(self.gpus) // self.containers
        samples = (ProcessSample(os.getpid(), self.now, percent),)
        return {gpu: GpuUtilization(self.now, samples) for gpu in self.gpus}

    def look(self, tick: int, *, busy: bool) -> float:
        """Milliseconds."""
        self.now += TICK
        answers = self.answers(tick) if busy else {}
        begin = time.thread_time()
        self.manager.share_now(self.now, answers)
        return 1000 * (time.thread_time() - begin)


def report(name: str, costs: list[float]) -> None:
    ordered = sorted(costs)
    worst = ordered[int(0.99 * (len(ordered) - 1))]
    share = statistics.mean(costs) / (1000 * TICK_SECONDS)
    print(
        f"{name:>5}: {statistics.median(costs):6.2f} ms p50, {worst:6.2f} ms p99 a look; "
        f"{share:.1%} of one core"
    )


async def main(containers: int, gpus: int, rounds: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    root = Path(tempfile.mkdtemp(prefix="gm"))
    try:
        node = Node(root, containers, gpus)
        await node.open()
        for name, busy in (("busy", True), ("idle", False)):
            costs = [node.look(tick, busy=busy) for tick in range(rounds + WARM)]
            report(name, costs[WARM:])
        await node.manager.stop()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--containers", type=int, default=256)
    parser.add_argument("--gpus", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=200)
    words = parser.parse_args()
    print(machine_line())
    print(f"{words.containers} containers that may burst, on {words.gpus} GPUs")
    asyncio.run(main(words.containers, words.gpus, words.rounds))
