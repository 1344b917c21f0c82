"""What the shim adds to a program's start: alone, and 300 of them at once.

    python benchmarks/starts.py [--rounds N] [--crowd N]

A start is: load libcuda, cuInit, in which the shim says HELLO to the manager. The first question
about memory after it asks the manager once more; it is shown apart. The driver is the stand-in of
hooks.py, with the shim before it or without, in turns; the manager is the real one in a process of
its own, which looks at each caller's cgroup. The programs run in containers of that manager, one
begun after the other has ended, so that its caches are as cold as on a node.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import hello
import hooks
from hooks import Bench, Place

from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_VCUDA
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.container.values import BindMount
from gpumanager.units import GIB, Bytes

PLACE = Place("managed", 30)
LIMIT = Limit(hooks.GPUS[0], Bytes(GIB), 30, 30)
LIBRARIES = {"driver": "libvcuda-real.so.1", "shim": "libcuda.so.1"}
ALONE, CROWD = 200.0, 1.0
"""Bars: microseconds that the shim may add alone; seconds that the whole crowd may take."""


Alone = dict[str, list[tuple[float, float]]]
"""Microseconds of starts, and of the first questions after them, by what was loaded."""


async def alone(bench: Bench, rounds: int) -> Alone:
    """In turns."""
    found: Alone = {side: [] for side in LIBRARIES}
    for _ in range(rounds):
        for side, library in LIBRARIES.items():
            (line,) = await bench.run(PLACE, "one", library)
            start, question, total = map(int, line.split())
            if (total == LIMIT.memory) != (side == "shim"):
                raise SystemExit(f"{side}: a device of {total} bytes; whose limit is that?")
            found[side].append((start / 1e3, question / 1e3))
    return found


async def crowd(bench: Bench, number: int, rounds: int) -> dict[str, list[float]]:
    """Seconds until so many have begun and ended, by what was loaded, in turns."""
    found: dict[str, list[float]] = {side: [] for side in LIBRARIES}
    for _ in range(rounds):
        for side, library in LIBRARIES.items():
            (line,) = await bench.run(PLACE, "all", library, number)
            found[side].append(int(line) / 1e9)
    return found


def spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:8.{digits}f}  ({low:.{digits}f} to {high:.{digits}f})"


async def run(options: argparse.Namespace, root: Path, directory: Path) -> None:
    mount = BindMount(str(directory), str(CONTAINER_VCUDA), read_only=True)
    bench = Bench(root, {PLACE: (mount,)}, "starts")
    figures = await alone(bench, options.rounds)
    for place, what in enumerate(("one start", "the first question")):
        sides = {side: [pair[place] for pair in pairs] for side, pairs in figures.items()}
        for side, values in sides.items():
            print(f"{what + ', ' + side:<28} us {spread(values, 0)}")
        added = statistics.median(sides["shim"]) - statistics.median(sides["driver"])
        bar = f"  bar {ALONE:.0f}" if place == 0 else ""
        print(f"{'added by the shim':<28} us {added:8.0f}{bar}")
    for side, values in (await crowd(bench, options.crowd, options.crowds)).items():
        bar = f"  bar {CROWD:g}" if side == "shim" else ""
        print(f"{str(options.crowd) + ' at once, ' + side:<28} s  {spread(values, 2)}{bar}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rounds", type=int, default=100, help="starts alone, of each side")
    arguments.add_argument("--crowd", type=int, default=300, help="programs at once")
    arguments.add_argument("--crowds", type=int, default=7, help="crowds, of each side")
    options = arguments.parse_args()
    if missing := namespaces_available():
        raise SystemExit(missing)
    root = Path(tempfile.mkdtemp(prefix="gm"))
    hooks.build(root)
    hello.compiled(root, "starts", "-ldl")
    with hello.served(root, lambda root: hello.start_manager(root, LIMIT)) as path:
        asyncio.run(run(options, root, Path(path).parent))


if __name__ == "__main__":
    main()
