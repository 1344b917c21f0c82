"""How long a process waits for its WELCOME: alone, and with 63 others at the same moment.

    python benchmarks/hello.py [--rounds N] [--crowd N]

The manager is the real one in a process of its own, and looks at each caller's cgroup. The callers
are processes that connect, say HELLO, receive the descriptor and keep the connection: a small
program in C (hello.c), as the shim is. Each is a new process to the manager. What a program in C
takes that does no more than answer them stands beside it (--floor, hello_floor.c).
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from machine_line import machine_line

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.units import GIB, Bytes

LIMIT = Limit(GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0"), Bytes(GIB), 30, 30)
NAME = AllocationID("benchmark")
HERE = Path(__file__).parent
INCLUDE = HERE.parent / "native" / "include"
CROWDS = 20
POD = PodUID("7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21")


def forked(work: Callable[[], object]) -> int:
    """Do `work` in a child process; returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def start_manager(root: Path, limit: Limit = LIMIT) -> tuple[int, str]:
    """A manager that serves one allocation: its pid and its socket."""
    ready, tell = os.pipe()

    async def serve() -> None:
        check = PodCheck(Containers(CgroupFiles.here()), {NAME: {POD}}.get)
        directory = await VirtualManager(root, turns=Turns(root / "turns"), peers=check).open(
            NAME, [limit]
        )
        os.write(tell, str(directory / "vcuda.sock").encode())
        await asyncio.Event().wait()

    pid = forked(lambda: asyncio.run(serve()))
    path = os.read(ready, 200).decode()
    return pid, path


def compiled(folder: Path, name: str, *libraries: str) -> Path:
    program = folder / name
    command = ["gcc", "-std=gnu11", "-O2", "-pthread", f"-I{INCLUDE}", "-o", str(program)]
    subprocess.run([*command, str(HERE / f"{name}.c"), *libraries], check=True)
    return program


def callers(program: Path, path: str, processes: int, rounds: int) -> list[float]:
    """Seconds of each."""
    words = [str(program), path, str(processes), str(rounds)]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [int(line.split()[0]) / 1e9 for line in shown.splitlines()]


@contextlib.contextmanager
def served(root: Path, start: Callable[[Path], tuple[int, str]]) -> Iterator[str]:
    """The socket of whoever was started; nothing is left of it, nor of `root`."""
    pid, path = start(root)
    try:
        print(machine_line())
        yield path
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        shutil.rmtree(root, ignore_errors=True)


def start_floor(root: Path) -> tuple[int, str]:
    """Whoever calls gets a WELCOME and two descriptors, from a program that does nothing else."""
    path = str(root / "floor.sock")
    floor = subprocess.Popen([compiled(root, "hello_floor"), path], stdout=subprocess.PIPE)
    assert floor.stdout is not None
    floor.stdout.readline()
    return floor.pid, path


def report(what: str, seconds: Sequence[float]) -> None:
    cuts = statistics.quantiles(seconds, n=100)
    p50, p99 = cuts[49] * 1e6, cuts[98] * 1e6
    print(f"{what:<28} p50 {p50:8.0f} us   p99 {p99:8.0f} us   n {len(seconds)}")


def measure(program: Path, path: str, options: argparse.Namespace) -> None:
    report("HELLO alone", callers(program, path, 1, options.rounds))
    crowd = callers(program, path, options.crowd, CROWDS)
    report(f"HELLO, {options.crowd} processes at once", crowd)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rounds", type=int, default=1000, help="HELLOs of one process alone")
    arguments.add_argument("--crowd", type=int, default=64, help="processes at once")
    arguments.add_argument("--floor", action="store_true", help="who does next to nothing instead")
    options = arguments.parse_args()
    root = Path(tempfile.mkdtemp(prefix="gm"))
    program = compiled(root, "hello")
    with served(root, start_floor if options.floor else start_manager) as path:
        measure(program, path, options)


if __name__ == "__main__":
    main()
