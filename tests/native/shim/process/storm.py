"""Processes race for the last bytes of one GPU, are killed, fork and exec; and what came of it.

    python -m tests.native.shim.process.storm [--processes 2,4,8,64] [--threads N] [--seconds S]
                                              [--kills N] [--seed N] [--requests N]
                                              [--kinds NAMES]

`cuda-storm` does it in a container, through the shim, on the simulated driver. Four things must
hold, and nobody is asked for them who could be wrong with the shim: the simulated GPU's own account
never shows a byte over the limit; no request was refused while there was room, as far as the
processes' own claims prove it (native/programs/cuda-storm/claims.h); a second after a process has
ended the books hold nothing for it; and when all hold still books and account are alike. Small
arrays are given back before: nothing tells which of them share a page.
"""

import argparse
import asyncio
import faulthandler
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpumanager.agent.wiring import MEASURE_SECONDS
from gpumanager.ids import AllocationID
from gpumanager.limits.turns import Turns
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.limits.metered_manager import MeteredManager as VirtualManager
from tests.native.gpu_node import GpuNode, machine_of
from vcuda_shim import PROGRAMS, SHIM_CUDA

NAME = AllocationID("storm")
LEARNING = """
from tests.native.programs.overhead_client import *
make()
address = ctypes.c_uint64()
for _ in range(4):
    assert driver.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(8 * PAGE), 1) == SUCCESS
    load(PAGE)
tell(done=True)
"""
"""What comes before it: the manager learns that a process's figure contains managed memory. In the
storm it may not come to that, and until then what the driver has besides is known roughly."""
LIMIT = 256 * MIB + 1
SAMPLE_SECONDS = 0.01
BACK_WITHIN = round(1 / SAMPLE_SECONDS)
"""Looks, a second of them."""
ALIKE_WITHIN = 30
"""Seconds. What the driver takes by itself is charged by estimate until the manager has measured
it; on a busy machine its passes come late."""
STUCK_AFTER = 300
"""Seconds beside those it rages. cuda-storm gives up before and says so."""


class StormStuck(Exception):
    """It did not come to its end in time."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Bytes in the books and on the GPU, by its own account, while all held still."""

    books: int
    account: int


@dataclass(slots=True)
class Watch:
    """What was seen while it raged.

    unburied: in how many looks a process was dead and had bytes in the books; on a busy machine we
    come to look less often, as the manager comes to put them right. slowest: ns after its death
    that a process was last seen to hold any; 0 if none was.
    """

    node: GpuNode
    manager: VirtualManager
    dead: dict[int, int] = field(default_factory=dict)
    unburied: Counter[int] = field(default_factory=Counter)
    samples: int = 0
    most: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    slowest: int = 0
    words: list[str] = field(default_factory=list)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    rest: Rest = field(default_factory=lambda: Rest(0, 0))

    def hear(self, line: str) -> None:
        match line.split():
            case ["dead", pid, when]:
                self.dead[int(pid)] = int(when)
            case ["quiet"]:
                self.quiet.set()
            case _ if line.startswith("{"):
                self.report = json.loads(line)
            case _:
                self.words.append(line)

    def look(self) -> None:
        now = time.monotonic_ns()
        holders = {one.pid for one in self.manager.usage(NAME).processes if any(one.held)}
        self.unburied.update(holders & self.dead.keys())
        held_for = [now - when for pid, when in self.dead.items() if pid in holders]
        self.slowest = max([self.slowest, *held_for])
        self.most = max(self.most, self.node.held())
        self.samples += 1

    async def look_on(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(SAMPLE_SECONDS)

    def alike(self) -> bool:
        self.rest = Rest(self.books(), self.node.held())
        return self.rest.books == self.rest.account

    @property
    def late(self) -> frozenset[int]:
        """Pids that had bytes in the books for too long."""
        return frozenset(pid for pid, looks in self.unburied.items() if looks > BACK_WITHIN)

    def books(self) -> int:
        return self.manager.usage(NAME).devices[0].held


@dataclass(frozen=True, slots=True)
class Outcome:
    """peak: the most at once, by the GPU's account. rest: when all was still.

    late: pids whose bytes were not back in time. slowest: as in Watch. words: what was said on
    stderr.
    """

    limit: int
    peak: int
    rest: Rest
    left: int
    late: frozenset[int]
    slowest: int
    samples: int
    report: dict[str, Any]
    words: tuple[str, ...]

    def faults(self) -> list[str]:
        """What did not hold."""
        found = {
            f"{self.peak - self.limit} bytes over the limit": self.peak > self.limit,
            f"{self.report['wrong']} requests refused while there was room": self.report["wrong"],
            f"bytes of {len(self.late)} dead processes came back late": self.late,
            f"{self.rest.books} bytes in the books, {self.rest.account} on the GPU": (
                self.rest.books != self.rest.account
            ),
            f"{self.left} bytes left at the end": self.left,
            f"a call returned {self.report['failure']}": self.report["failure"],
            "it never came to rest": not self.report["calm"],
            f"{self.report['left']} processes did not end": self.report["left"],
        }
        return [words for words, happened in found.items() if happened]


async def ended_within(awaited: Awaitable[Any], seconds: float, watch: Watch) -> None:
    try:
        await asyncio.wait_for(awaited, seconds)
    except TimeoutError:
        said = "; ".join(watch.words) or "nothing said"
        raise StormStuck(f"no end of the storm within {seconds:.0f} s: {said}") from None


async def true_within(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # noqa: ASYNC110 - nobody to set an event
        await asyncio.sleep(SAMPLE_SECONDS)
    return bool(condition())


async def storm(
    work: Path,
    *,
    processes: int,
    threads: int,
    seconds: float,
    kills: float,
    seed: int,
    requests: int = 0,
    kinds: str = "",
    context_bytes: int = 0,
    shim: Path = SHIM_CUDA,
) -> Outcome:
    """requests: after which it ends, 0 for never. kinds: no names for all. shim: another build."""
    manager = VirtualManager(work, meter=lambda _: node.meter(), turns=Turns(work / "turns"))
    gpus = SimulatedGpus.create(work, machine_of(context_bytes=context_bytes))
    node = GpuNode(work, manager, gpus, shim)
    container = await node.container(LIMIT, name=NAME)
    await container.run(LEARNING)
    watch, go_on = Watch(node, manager), work / "go-on"
    options = {
        "--processes": processes,
        "--threads": threads,
        "--seconds": seconds,
        "--limit": LIMIT,
        "--seed": seed,
        "--kills": kills,
        "--requests": requests,
        "--until": go_on,
    }
    if kinds:
        options["--kinds"] = kinds
    words = [str(word) for option in options.items() for word in option]
    started = await container.start([str(PROGRAMS / "cuda-storm"), *words], watch.hear)
    measuring = asyncio.create_task(manager.measure_every(MEASURE_SECONDS))
    looking = asyncio.create_task(watch.look_on())
    try:
        await ended_within(watch.quiet.wait(), seconds + STUCK_AFTER, watch)
        await true_within(watch.alike, ALIKE_WITHIN)
        go_on.touch()
        await ended_within(started.wait(), STUCK_AFTER, watch)
        if not watch.report:
            raise StormStuck("; ".join(watch.words) or "it ended and said nothing")
        await true_within(lambda: watch.books() == node.held() == 0, 2)
        left = max(watch.books(), node.held())
        peak = max(watch.most, *node.peaks())
    finally:
        looking.cancel()
        measuring.cancel()
        await started.close()
        await manager.stop()
        gpus.close()
    for task in (looking, measuring):
        if task.done() and not task.cancelled():
            task.result()
    return Outcome(
        LIMIT,
        peak,
        watch.rest,
        left,
        watch.late,
        watch.slowest,
        watch.samples,
        watch.report,
        tuple(watch.words),
    )


def run(arguments: argparse.Namespace, processes: int) -> list[str]:
    work = Path(tempfile.mkdtemp(prefix="gm"))
    try:
        outcome = asyncio.run(
            storm(
                work,
                processes=processes,
                threads=arguments.threads,
                seconds=arguments.seconds,
                kills=arguments.kills,
                seed=arguments.seed,
                requests=arguments.requests,
                kinds=arguments.kinds,
                context_bytes=arguments.context_bytes,
            )
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(row(processes, outcome), flush=True)
    for words in (*outcome.faults(), *outcome.words):
        print(f"{'':8}{words}", flush=True)
    return outcome.faults()


COLUMNS = {
    "processes": 9,
    "taken": 9,
    "refused": 9,
    "wrongly": 7,
    "killed": 6,
    "forks": 5,
    "execs": 5,
    "peak, bytes": 14,
    "of limit": 14,
    "back after": 11,
}


def heading() -> str:
    return "  ".join(f"{name:>{width}}" for name, width in COLUMNS.items())


def row(processes: int, outcome: Outcome) -> str:
    report = outcome.report
    cells = [
        processes,
        *(report[what] for what in ("taken", "refused", "wrong", "killed", "forks", "execs")),
        f"{outcome.peak:,}",
        f"{outcome.limit:,}",
        f"{outcome.slowest / 1e6:.0f} ms",
    ]
    row = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, COLUMNS.values(), strict=True))
    return row + ("  FAULTS" if outcome.faults() else "  all held")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", default="2,4,8,64", help="numbers, one storm for each")
    parser.add_argument("--threads", type=int, default=2, help="in each process")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--kills", type=float, default=20, help="a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=0, help="after which one ends; 0: never")
    parser.add_argument("--kinds", default="", help="of memory (cuda-storm/kinds.h); else all")
    parser.add_argument("--context-bytes", type=int, default=0, help="that a context takes")
    arguments = parser.parse_args(words)
    if missing := namespaces_available():
        raise SystemExit(missing)
    numbers = [int(number) for number in arguments.processes.split(",")]
    faulthandler.dump_traceback_later(len(numbers) * (arguments.seconds + STUCK_AFTER), exit=True)
    print(heading(), flush=True)
    faults = [run(arguments, number) for number in numbers]
    return int(any(faults))


if __name__ == "__main__":
    sys.exit(main())
