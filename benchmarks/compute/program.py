"""The command: which cases, on which clock, how often; what is printed and what is written."""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from machine_line import machine_line

from compute import figures, report
from compute.baselines import build
from compute.cases import Case
from compute.grid import QUICK, REAL, cases, chosen, compared
from compute.judge import Verdict
from compute.runner import Limiter, Ran, Runner
from gpumanager.errors import GpuManagerError
from gpumanager.sim.machine import (
    BEHAVIOURS,
    DEFAULT_BEHAVIOUR,
    DriverBehaviour,
    UtilizationSamples,
)

DESCRIPTION = "Compute shares on a simulated GPU: guaranteed, and got."
NOTE = """SIMULATED GPU. Real processes, the real shim and manager.
It tests the control law against a model of a GPU, not how a real GPU divides its time."""
SAMPLES = {one.name.lower().replace("_", "-"): one for one in UtilizationSamples}
US = 1000
MOST_US = 1_000_000


def options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    add = parser.add_argument
    add("--case", action="append", default=[], metavar="NAME", help="only these; * and ? work")
    add("--quick", action="store_true", help="some of the cases, in about a minute")
    add("--clock", choices=("virtual", "real"), default="virtual")
    add("--driver", choices=BEHAVIOURS, help="how it behaves in all that is not said otherwise")
    add("--switch-cost", type=microseconds, metavar="US", help="lost at each switch of processes")
    add("--samples", choices=SAMPLES, help="what NVML tells of processes' utilisation")
    add("--rounds", type=int, help="how often each case is run; 3 on the real clock")
    add("--no-baselines", action="store_true", help="leave the comparison out")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--drawings", type=Path, metavar="FOLDER", help="write shares.svg and baselines.svg there")
    add("--strict", action="store_true", help="fail if a bar is missed")
    add("--list", action="store_true", help="say what cases there are, and end")
    return parser.parse_args(words)


def microseconds(text: str) -> int:
    """In nanoseconds."""
    if not text.isdecimal() or int(text) > MOST_US:
        raise argparse.ArgumentTypeError(f"{text!r} is not microseconds from 0 to {MOST_US}")
    return int(text) * US


def behaviour(given: argparse.Namespace) -> DriverBehaviour:
    found = BEHAVIOURS[given.driver] if given.driver else DEFAULT_BEHAVIOUR
    if given.switch_cost is not None:
        found = replace(found, switch_ns=given.switch_cost)
    if given.samples is not None:
        found = replace(found, samples=SAMPLES[given.samples])
    return found


def shown_behaviour(driver: DriverBehaviour) -> str:
    """What matters to shares."""
    samples = next(name for name, one in SAMPLES.items() if one == driver.samples)
    slices = f"{driver.slice_ns / US:g} us" if driver.slice_ns else "2 ms"
    return (
        f"slices of {slices}, {driver.switch_ns / US:g} us for a "
        f"switch of processes; utilisation samples: {samples}"
    )


def wanted(given: argparse.Namespace) -> list[Case]:
    """The cases to run under the shim alone."""
    preset = QUICK if given.quick else REAL if given.clock == "real" else ()
    found = chosen(given.case or preset, cases())
    drawn = figures.needed() if given.drawings else []
    names = {one.name for one in found}
    return [*found, *(one for one in cases() if one.name in drawn and one.name not in names)]


def rivals(given: argparse.Namespace) -> list[Case]:
    """The cases to run under the baselines too."""
    if given.drawings or not (given.no_baselines or given.quick or given.case):
        return compared()
    return chosen(given.case, compared()) if given.case else []


@dataclass(slots=True)
class Bench:
    """runs: all that was run, in order. failed: names of cases that could not be."""

    runner: Runner
    rounds: int
    runs: list[Ran] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def each(self, pairs: Sequence[tuple[Case, Limiter]]) -> AsyncIterator[list[Ran]]:
        """All rounds of each case, in order. A case that fails is said, and has no rounds."""
        for number, (case, limiter) in enumerate(pairs):
            progress(f"{number + 1} of {len(pairs)}: {case.name}")
            rounds: list[Ran] = []
            try:
                rounds = [await self.runner.run(case, limiter) for _ in range(self.rounds)]
            except GpuManagerError as error:
                self.failed.append(case.name)
                print(f"{case.name}: {error}", flush=True)
            progress("")
            self.runs += rounds
            yield rounds

    async def grid(self, among: Sequence[Case]) -> list[Verdict]:
        loss = self.runner.driver.switch_ns > 0
        print(f"\n{report.LOSS_HEADING if loss else report.HEADING}", flush=True)
        verdicts = []
        async for rounds in self.each([(case, "shim") for case in among]):
            verdicts += list(shown(rounds, loss=loss))
        print()
        for line in report.summary(verdicts):
            print(line)
        return verdicts

    async def comparison(self, among: Sequence[Case]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            limiters: dict[str, Limiter] = {"shim": "shim", **build(Path(folder))}
            print(f"\n{report.beside_heading(list(limiters))}", flush=True)
            for case in among:
                pairs = [(case, limiter) for limiter in limiters.values()]
                row = [rounds[0].verdicts async for rounds in self.each(pairs) if rounds]
                if len(row) == len(limiters):
                    print(report.beside(case.name, row), flush=True)


def shown(rounds: Sequence[Ran], *, loss: bool) -> Iterator[Verdict]:
    """Print a case, a row for each phase; the typical round of several."""
    for phase in zip(*(ran.verdicts for ran in rounds), strict=True):
        one = report.typical(phase)
        print(report.row(one, loss=loss), flush=True)
        if len(phase) > 1:
            print(report.spread(phase), flush=True)
        yield one


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def draw(folder: Path, runs: Sequence[Ran]) -> None:
    by_case: dict[str, dict[str, Ran]] = {}
    for ran in runs:
        by_case.setdefault(ran.case.name, {})[ran.limiter] = ran
    folder.mkdir(parents=True, exist_ok=True)
    played = {
        name: {limiter: (ran.case, ran.played) for limiter, ran in ways.items()}
        for name, ways in by_case.items()
    }
    alone = {name: ways["shim"] for name, ways in played.items()}
    (folder / "shares.svg").write_text(figures.shares(alone))
    (folder / "baselines.svg").write_text(figures.baselines(played))


def document(given: argparse.Namespace, runs: Sequence[Ran]) -> Mapping[str, Any]:
    rows = [
        {"limiter": ran.limiter, **report.values(verdict)}
        for ran in runs
        for verdict in ran.verdicts
    ]
    return {
        "machine": machine_line(),
        "simulated": True,
        "clock": given.clock,
        "driver": asdict(behaviour(given)),
        "rows": rows,
    }


async def bench(given: argparse.Namespace) -> int:
    rounds = given.rounds or (3 if given.clock == "real" else 1)
    driver = behaviour(given)
    work = Bench(Runner(given.clock, driver), rounds)
    print(f"{machine_line()}; {given.clock} clock\n{NOTE}\n{shown_behaviour(driver)}")
    begin = time.monotonic()
    among, others = wanted(given), rivals(given)
    verdicts = await work.grid(among) if among else []
    if others:
        await work.comparison(others)
    print(f"\n{time.monotonic() - begin:.0f} s")
    if given.json:
        given.json.write_text(json.dumps(document(given, work.runs), indent=1) + "\n")
    if given.drawings:
        draw(given.drawings, work.runs)
    missed = given.strict and any(one.missed for one in verdicts)
    return int(missed or bool(work.failed))


def main(words: Sequence[str]) -> int:
    given = options(words)
    if given.list:
        print("\n".join(one.name for one in (*cases(), *compared())))
        return 0
    if not wanted(given) and not rivals(given):
        raise SystemExit(f"no case is called {' or '.join(given.case)}; see --list")
    return asyncio.run(bench(given))
