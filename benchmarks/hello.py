"""How long a process waits for its WELCOME: alone, and with 63 others at the same moment.

    python benchmarks/hello.py [--rounds N] [--crowd N]

The manager is the real one in a process of its own, and looks at each caller's cgroup. The callers
are processes that connect, say HELLO, receive the two descriptors and hang up, all in plain Python.
Their own time is in the figures: they bound what the manager takes from above.
"""

import argparse
import array
import asyncio
import os
import shutil
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from machine_line import machine_line

from gpumanager.gpu.values import GpuUUID
from gpumanager.kubelet.pods import PodUID
from gpumanager.runtime.cgroup_files import CgroupFiles
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.units import GIB, Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim._shim import ffi, lib

LIMIT = Limit(GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0"), Bytes(GIB), 30, 30)
NAME = AllocationID("benchmark")
POD = PodUID("7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21")


def hello() -> bytes:
    message: Any = ffi.new("struct vcuda_hello *")
    message.magic, message.version = lib.VCUDA_PROTOCOL_MAGIC, lib.VCUDA_PROTOCOL_VERSION
    message.kind, message.region_abi = lib.VCUDA_HELLO, lib.VCUDA_REGION_ABI
    return bytes(ffi.buffer(message))


HELLO = hello()


def exchange(path: str) -> float:
    """Seconds from connect() to the descriptors in hand."""
    begin = time.perf_counter()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(HELLO)
        _welcome, descriptors, _flags, _address = socket.recv_fds(connection, 128, 2)
    seconds = time.perf_counter() - begin
    for descriptor in descriptors:
        os.close(descriptor)
    if len(descriptors) != 2:
        raise SystemExit("the manager refused")
    return seconds


def forked(work: Callable[[], object]) -> int:
    """Do `work` in a child process; returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def start_manager(root: Path) -> tuple[int, str]:
    """A manager that serves one allocation: its pid and its socket."""
    ready, tell = os.pipe()

    async def serve() -> None:
        check = PodCheck(Containers(CgroupFiles.here()), {NAME: POD}.get)
        directory = await VirtualSockets(root, peers=check).open(NAME, [LIMIT])
        os.write(tell, str(directory / "vcuda.sock").encode())
        await asyncio.Event().wait()

    pid = forked(lambda: asyncio.run(serve()))
    path = os.read(ready, 200).decode()
    return pid, path


def alone(path: str, rounds: int) -> list[float]:
    return [exchange(path) for _ in range(rounds)]


def crowd(path: str, size: int) -> list[float]:
    """One HELLO each of `size` processes that start together."""
    start, started = os.pipe()
    told, teller = os.pipe()

    def member() -> None:
        os.close(started)
        os.read(start, 1)
        os.write(teller, array.array("d", [exchange(path)]).tobytes())

    children = [forked(member) for _ in range(size)]
    for descriptor in (start, started, teller):
        os.close(descriptor)
    for child in children:
        os.waitpid(child, 0)
    seconds = array.array("d", os.read(told, 8 * size))
    os.close(told)
    return list(seconds)


def report(what: str, seconds: Sequence[float]) -> None:
    cuts = statistics.quantiles(seconds, n=100)
    p50, p99 = cuts[49] * 1e6, cuts[98] * 1e6
    print(f"{what:<28} p50 {p50:8.0f} us   p99 {p99:8.0f} us   n {len(seconds)}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rounds", type=int, default=2000, help="HELLOs of one process alone")
    arguments.add_argument("--crowd", type=int, default=64, help="processes at once")
    options = arguments.parse_args()
    root = Path(tempfile.mkdtemp(prefix="gm"))
    manager, path = start_manager(root)
    try:
        print(machine_line())
        report("HELLO alone", alone(path, options.rounds))
        together = [one for _ in range(10) for one in crowd(path, options.crowd)]
        report(f"HELLO, {options.crowd} processes at once", together)
    finally:
        os.kill(manager, signal.SIGKILL)
        os.waitpid(manager, 0)
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
