"""Processes race for the last bytes of one GPU, are killed, fork and exec; and what came of it.

    python tests/native/storm.py [--processes 2,4,8,64] [--threads N] [--seconds S] [--kills N]

`cuda-storm` does it in a container, through the shim, on the simulated driver. Four things must
hold, and nobody is asked for them who could be wrong with the shim: the simulated GPU's own account
never shows a byte over the limit; no request was refused while there was room, as far as the
processes' own claims prove it (native/programs/cuda-storm/claims.h); a second after a process has
ended the books hold nothing for it; and when all hold still books and account are alike.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulated_gpu import SimulatedNode

from gpumanager.sim.container.process import namespaces_available
from gpumanager.units import MIB
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID
from vcuda_shim import PROGRAMS, SHIM_CUDA

NAME = AllocationID("storm")
LIMIT = 96 * MIB + 1
BACK_WITHIN_NS = 1_000_000_000
SAMPLE_SECONDS = 0.01


@dataclass(slots=True)
class Watch:
    """What was seen while it raged. late: pids that had bytes in the books for too long."""

    node: SimulatedNode
    manager: VirtualSockets
    dead: dict[int, int] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    samples: int = 0
    most: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)

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
        overdue = {pid for pid, when in self.dead.items() if when + BACK_WITHIN_NS < now}
        self.late |= holders & overdue
        self.most = max(self.most, self.node.held())
        self.samples += 1

    async def look_on(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(SAMPLE_SECONDS)

    def alike(self) -> bool:
        return self.books() == self.node.held()

    def books(self) -> int:
        return self.manager.usage(NAME).devices[0].held


@dataclass(frozen=True, slots=True)
class Outcome:
    """peak: the most at once, by the GPU's account. alike: books and account, when all was still.

    late: pids whose bytes were not back in time. words: what was said on stderr.
    """

    limit: int
    peak: int
    held_at_rest: int
    alike: bool
    left: int
    late: frozenset[int]
    samples: int
    report: dict[str, Any]
    words: tuple[str, ...]

    def faults(self) -> list[str]:
        """What did not hold."""
        found = {
            f"{self.peak - self.limit} bytes over the limit": self.peak > self.limit,
            f"{self.report['wrong']} requests refused while there was room": self.report["wrong"],
            f"bytes of {len(self.late)} dead processes came back late": self.late,
            "books and account differ": not self.alike,
            f"{self.left} bytes left at the end": self.left,
            f"a call returned {self.report['failure']}": self.report["failure"],
            "it never came to rest": not self.report["calm"],
            f"{self.report['left']} processes did not end": self.report["left"],
        }
        return [words for words, happened in found.items() if happened]


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
    shim: Path = SHIM_CUDA,
) -> Outcome:
    """shim: another build of it."""
    manager = VirtualSockets(work)
    node = SimulatedNode(work, manager, shim)
    container = await node.container(NAME, LIMIT)
    watch, go_on = Watch(node, manager), work / "go-on"
    options = {
        "--processes": processes,
        "--threads": threads,
        "--seconds": seconds,
        "--limit": LIMIT,
        "--seed": seed,
        "--kills": kills,
        "--until": go_on,
    }
    words = [str(word) for option in options.items() for word in option]
    started = await container.start([str(PROGRAMS / "cuda-storm"), *words], watch.hear)
    looking = asyncio.create_task(watch.look_on())
    try:
        await asyncio.wait_for(watch.quiet.wait(), seconds + 60)
        alike = await true_within(watch.alike, 2)
        at_rest = node.held()
        go_on.touch()
        await asyncio.wait_for(started.wait(), 60)
        await true_within(lambda: watch.books() == node.held() == 0, 2)
        left = max(watch.books(), node.held())
        peak = max(watch.most, *node.peaks())
    finally:
        looking.cancel()
        await started.close()
        await manager.stop()
        node.close()
    if looking.done() and not looking.cancelled():
        looking.result()
    return Outcome(
        LIMIT,
        peak,
        at_rest,
        alike,
        left,
        frozenset(watch.late),
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
            )
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report, faults = outcome.report, outcome.faults()
    print(
        f"{processes:4} processes: {report['taken']} taken, {report['refused']} refused, "
        f"{report['started']} started, {report['killed']} killed, {report['execs']} execs; "
        f"peak {outcome.peak} of {outcome.limit} bytes, {outcome.samples} looks: "
        + ("; ".join(faults) or "all held")
    )
    print("".join(f"      {line}\n" for line in outcome.words), end="")
    return faults


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", default="2,4,8,64", help="numbers, one storm for each")
    parser.add_argument("--threads", type=int, default=2, help="in each process")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--kills", type=float, default=20, help="a second")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(words)
    if missing := namespaces_available():
        raise SystemExit(missing)
    faults = [run(arguments, int(number)) for number in arguments.processes.split(",")]
    return int(any(faults))


if __name__ == "__main__":
    sys.exit(main())
