"""What the shim adds to a call: launches, allocations, questions about memory, refusals.

    python benchmarks/hooks.py [--processes N] [--rounds N] [--calls N]

The driver behind the shim is a stand-in that does almost nothing (hooks_driver.c), so that the
difference between a call to it and the same call through the shim is the shim's own cost. Both are
in one process and take turns; containers with different limits take turns too. The containers are
real mount namespaces with the real manager's directory at /etc/vcuda. A figure is the mean of one
round's calls, and what is shown is the median of all rounds, with the middle half of them.
"""

import argparse
import asyncio
import re
import shutil
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from machine_line import machine_line

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_TURNS, CONTAINER_VCUDA
from gpumanager.sim.container.process import namespaces_available, start_container
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.units import GIB, Bytes
from vcuda_shim import SHIM_CUDA

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "native" / "include"
GPUS = (
    GpuUUID("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
    GpuUUID("GPU-10010203-0405-0607-0809-0a0b0c0d0e0f"),
)
"""The stand-in driver's one, and one that a container may have besides."""
SECONDS = 120.0
COUNTED = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", re.MULTILINE)
"""A row of strace -c: percent, seconds, usecs/call, calls, errors where there are some, name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A container to measure in. cores: its guarantee in percent; None if it is not managed."""

    name: str
    cores: int | None
    gpus: int = 1

    @property
    def limits(self) -> tuple[Limit, ...]:
        cores = self.cores or 0
        return tuple(Limit(gpu, Bytes(64 * GIB), cores, cores) for gpu in GPUS[: self.gpus])


UNMANAGED = Place("not managed", None)
UNLIMITED = Place("managed, 100 cores", 100)
LIMITED = Place("managed, 90 cores", 90)
PAIR = Place("90 cores of two GPUs", 90, gpus=2)
PLACES = (UNMANAGED, UNLIMITED, LIMITED, PAIR)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report. bar: ns that may be added, at most; None where there is none."""

    text: str
    operation: str
    place: Place
    bar: float | None = None


ROWS = (
    Row("cuLaunchKernel", "launch", UNMANAGED, 3),
    Row("cuLaunchKernel", "launch", UNLIMITED, 3),
    Row("cuLaunchKernel, not throttled", "launch", LIMITED, 15),
    Row("… of 16 functions in turn", "kinds", LIMITED, 15),
    Row("… by 8 processes at once", "crowd", LIMITED, 40),
    Row("… with two GPUs", "launch", PAIR),
    Row("cuMemAlloc_v2", "allocate", UNMANAGED),
    Row("cuMemAlloc_v2", "allocate", UNLIMITED, 1000),
    Row("cuMemAlloc_v2", "allocate", LIMITED, 1000),
    Row("cuMemAlloc_v2, refused", "refuse", UNMANAGED),
    Row("cuMemAlloc_v2, refused", "refuse", UNLIMITED, 1000),
    Row("cuMemFree_v2", "free", UNMANAGED),
    Row("cuMemFree_v2", "free", UNLIMITED),
    Row("cuMemAllocAsync + cuMemFreeAsync", "pooled", UNMANAGED),
    Row("cuMemAllocAsync + cuMemFreeAsync", "pooled", UNLIMITED, 1000),
    Row("… in a pool with 200 holes", "holes", UNLIMITED, 1000),
    Row("cuMemCreate + cuMemRelease", "physical", UNMANAGED),
    Row("cuMemCreate + cuMemRelease", "physical", UNLIMITED, 1000),
    Row("cuMemGetInfo_v2", "look", UNMANAGED),
    Row("cuMemGetInfo_v2", "look", UNLIMITED),
)

COUNTED_CALLS = (
    ("cuLaunchKernel", "launch", None),
    ("cuMemAlloc_v2", "keep", None),
    ("cuMemAlloc_v2, refused", "refuse", None),
    ("cuMemFree_v2", "allocate", "keep"),
    ("cuMemAllocAsync + cuMemFreeAsync", "pooled", None),
    ("cuMemCreate + cuMemRelease", "physical", None),
    ("cuMemGetInfo_v2", "look", None),
)
"""A call; what the program is to do for it; and what of that is not the call."""

Figures = dict[tuple[str, str], list[float]]
"""ns per call, by operation and side (`driver`, `shim`)."""


def build(folder: Path) -> None:
    """The program, and the driver folder of a container: shim, and stand-in beside it."""
    flags = ["gcc", "-std=gnu11", "-O2", f"-I{INCLUDE}"]
    soname = ["-fPIC", "-shared", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1"]
    driver = [*flags, *soname, "-o", folder / "libvcuda-real.so.1", HERE / "hooks_driver.c"]
    program = [*flags, "-o", folder / "hooks", HERE / "hooks.c", "-ldl"]
    for command in (driver, program):
        subprocess.run(list(map(str, command)), check=True, timeout=60)
    shutil.copy2(SHIM_CUDA, folder / SHIM_CUDA.name)


@dataclass(frozen=True, slots=True)
class Bench:
    """folder: of program and libraries. mounts: the directory of its allocation, and its turns."""

    folder: Path
    mounts: Mapping[Place, Sequence[BindMount]]
    program: str = "hooks"

    async def run(self, place: Place, *words: object, through: Sequence[object] = ()) -> list[str]:
        """Run the program in a container of this place; returns its output."""
        lines: list[str] = []
        spec = self._spec(place, [*through, self.folder / self.program, *words])
        process = await start_container(spec, lines.append)
        try:
            status = await asyncio.wait_for(process.wait(), SECONDS)
        finally:
            await process.close()
        if status != 0:
            raise SystemExit(f"{place.name}: exit {status}: " + " ".join(lines))
        return lines

    def _spec(self, place: Place, command: Sequence[object]) -> ContainerSpec:
        return ContainerSpec(
            command=tuple(map(str, command)),
            environment={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(self.folder)},
            mounts=tuple(self.mounts.get(place, ())),
        )


async def measure(bench: Bench, options: argparse.Namespace) -> Mapping[Place, Figures]:
    """All places in turns, so that what the machine does meanwhile meets them all."""
    figures: dict[Place, Figures] = {place: defaultdict(list) for place in PLACES}
    for _ in range(options.processes):
        for place in PLACES:
            for line in await bench.run(place, "time", options.rounds, options.calls):
                operation, side, nanoseconds = line.split()
                figures[place][operation, side].append(float(nanoseconds))
    return figures


def report(row: Row, figures: Figures) -> None:
    """Paired: each round's shim against the same round's driver."""
    shim, driver = figures[row.operation, "shim"], figures[row.operation, "driver"]
    added = [a - b for a, b in zip(shim, driver, strict=True)]
    low, middle, high = statistics.quantiles(added, n=4)
    bar = "" if row.bar is None else f"{row.bar:6.0f}  {'met' if middle <= row.bar else 'MISSED'}"
    sides = f"{statistics.median(driver):8.1f} {statistics.median(shim):8.1f}"
    added_words = f"{middle:8.1f}  ({low:.1f} to {high:.1f})"
    print(f"{row.text:<33} {row.place.name:<20} {sides} {added_words}".ljust(101) + bar)


async def system_calls(bench: Bench, operation: str, less: str | None, calls: int = 2000) -> str:
    """System calls of one operation: of so many calls, less those of none, or of another's."""
    strace = shutil.which("strace")
    if strace is None:
        return "not counted: strace is not installed"
    busy = await _counted(bench, strace, operation, calls)
    idle = await _counted(bench, strace, less or operation, calls if less else 0)
    each = {name: (busy[name] - idle.get(name, 0)) / calls for name in busy}
    shown = [f"{number:.2f} {name}" for name, number in sorted(each.items()) if number > 0.005]
    return ", ".join(shown) or "none"


async def _counted(bench: Bench, strace: str, operation: str, calls: int) -> dict[str, int]:
    out = bench.folder / "strace.txt"
    words = ("call", operation, calls)
    await bench.run(LIMITED, *words, through=[strace, "-f", "-c", "-o", out])
    rows = COUNTED.findall(out.read_text())
    return {name: int(count) for count, name in rows if name != "total"}


async def serve(root: Path, manager: VirtualManager) -> Bench:
    folder = root / "lib"
    folder.mkdir()
    build(folder)
    managed = [place for place in PLACES if place.cores is not None]
    return Bench(folder, {place: await mounts(manager, place) for place in managed})


async def mounts(manager: VirtualManager, place: Place) -> Sequence[BindMount]:
    name = AllocationID(f"cores-{place.cores}-{place.gpus}")
    directory = await manager.open(name, place.limits)
    places = ((directory, CONTAINER_VCUDA), (manager.turns(name), CONTAINER_TURNS))
    return [BindMount(str(one), str(there), read_only=True) for one, there in places if one]


async def run(options: argparse.Namespace, root: Path) -> None:
    manager = VirtualManager(root, turns=Turns(root / "turns"))
    try:
        bench = await serve(root, manager)
        figures = await measure(bench, options)
        (limited,) = manager.usage(AllocationID(f"cores-{LIMITED.cores}-{LIMITED.gpus}")).devices
        head = f"{'ns per call':<33} {'':<20} {'driver':>8} {'shim':>8} {'added':>8}"
        print(f"{head}  (middle half)".ljust(101) + "   bar")
        for row in ROWS:
            report(row, figures[row.place])
        waited = limited.throttled_ns / max(1, limited.launches)
        print(f"throttled in the limited container: {waited:.3f} ns a launch")
        for call, operation, less in COUNTED_CALLS:
            print(f"system calls, {call}: {await system_calls(bench, operation, less)}")
    finally:
        await manager.stop()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--processes", type=int, default=7, help="for each kind of container")
    arguments.add_argument("--rounds", type=int, default=9, help="in each process")
    arguments.add_argument("--calls", type=int, default=100_000, help="in each round")
    options = arguments.parse_args()
    if missing := namespaces_available():
        raise SystemExit(missing)
    root = Path(tempfile.mkdtemp(prefix="gm"))
    try:
        print(machine_line())
        asyncio.run(run(options, root))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
