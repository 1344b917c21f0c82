"""How long one placement of whole GPUs takes on 16 GPUs: `python benchmarks/placement.py`.

The families span what machines look like and what is hardest for an exact search: all pairs equal
(everything ties), a tree of PCIe switches, random links, and the complement of a ring (very many
ties without interchangeable GPUs; no machine is built so). Nothing is cached between calls.
"""

import random
import statistics
import timeit
from collections.abc import Callable

from machine_line import machine_line

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.placement.place import place
from gpumanager.placement.values import FreeGpus, Request
from gpumanager.units import GIB, Bytes

GPUS = 16
SIZES = (2, 4, 6, 8, 12)
RUNS = 15


def node(bond: Callable[[int, int], Bond], numa: Callable[[int], int]) -> Topology:
    gpus = [
        Gpu(n, n, GpuUUID(f"GPU-{n}"), str(n), "model", Bytes(16 * GIB), numa(n))
        for n in range(GPUS)
    ]
    pairs = {(a, b): bond(a, b) for b in range(GPUS) for a in range(b)}
    bonds = [
        [None if a == b else pairs[min(a, b), max(a, b)] for b in range(GPUS)] for a in range(GPUS)
    ]
    return topology(gpus, bonds)


def switches(a: int, b: int) -> Bond:
    for size, level in ((2, Level.PIX), (4, Level.PXB), (8, Level.NODE)):
        if a // size == b // size:
            return Bond(level)
    return Bond(Level.SYS)


def families() -> dict[str, Topology]:
    dice = random.Random(1)
    links = [*(Bond(level) for level in Level), *(Bond(Level.SYS, n) for n in range(1, 13))]
    return {
        "uniform NVSwitch": node(lambda a, b: Bond(Level.SYS, 12), lambda n: n // 8),
        "tree of PCIe switches": node(switches, lambda n: n // 8),
        "random links": node(lambda a, b: dice.choice(links), lambda n: n // 8),
        "complement of a ring": node(
            lambda a, b: Bond(Level.SYS, (a - b) % GPUS not in (1, GPUS - 1)), lambda n: n // 4
        ),
    }


def milliseconds(machine: Topology, size: int) -> list[float]:
    books, request = FreeGpus.of_idle(machine), Request(100 * size)
    runs = timeit.repeat(lambda: place(machine, books, request), number=1, repeat=RUNS)
    return [1000 * seconds for seconds in runs]


def main() -> None:
    print(machine_line())
    print(f"one decision on {GPUS} free GPUs, ms: median (most) of {RUNS}")
    print(f"{'':24}" + "".join(f"{f'{size} GPUs':>16}" for size in SIZES))
    for name, machine in families().items():
        cells = [milliseconds(machine, size) for size in SIZES]
        shown = [f"{statistics.median(cell):.2f} ({max(cell):.2f})" for cell in cells]
        print(f"{name:24}" + "".join(f"{cell:>16}" for cell in shown))


if __name__ == "__main__":
    main()
