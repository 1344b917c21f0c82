"""The stage of facts: what its program prints on the simulated driver, and what each check makes of
lines that are missing, refused or cannot be.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_check.bench
import pytest
from gpu_check.bench import SLOWNESS, Bench
from gpu_check.conductor import Check, conduct
from gpu_check.outcome import CheckFailed, Lost, Verdict
from gpu_check.results import CHECKS, Results
from gpu_check.stages import facts
from gpu_check.stages.facts import (
    Group,
    Printed,
    Row,
    impossible,
    is_full,
    measured,
    samples,
    shared,
)
from gpu_check.timeslices import Sharing, Timeline, sharing

from gpumanager.sim.machine import REAL
from tests import ROOT
from tests.native.sim_box import machine, sim_box

MS = 1_000_000
BEGIN = 1_000 * MS
"""Of the GPU's clock, in all timelines here."""

RAN_EMPTY = -3
BUSY = {0, -2, RAN_EMPTY}
"""Results on a busy machine: nothing was seen in time, or the host was so late that a stream had
nothing to do meanwhile."""

SOURCES = ROOT / "benchmarks/gpu_check/programs/gpu_facts"


def turns(first: int, length: int, pause: int, count: int, step: int = 1) -> Timeline:
    """One that has the GPU `count` times, by a clock that moves by so much at once."""
    begins = [BEGIN + first + number * (length + pause) for number in range(count)]
    marks = [mark // step * step for begin in begins for mark in (begin, begin + length)]
    return Timeline(marks[0], marks[-1], tuple(zip(marks[1:-1:2], marks[2:-1:2], strict=True)))


def test_two_that_alternate_show_the_slice_and_the_switch() -> None:
    one = turns(0, 1_000_000, 1_100_000, 100)
    other = turns(1_050_000, 1_000_000, 1_100_000, 100)

    seen = sharing(one, other)

    assert seen.window == one.end - other.begin
    assert set(seen.slices) == {1_000_000}
    assert len(seen.slices) == 196  # those at the ends of the window may be longer
    assert (set(seen.switches), len(seen.switches)) == ({50_000}, 197)
    assert seen.overlap == 0


@pytest.mark.parametrize("offset", range(0, 1000, 90))
def test_the_steps_of_a_clock_make_no_overlap(offset: int) -> None:
    one = turns(offset, 1_000_000, 1_010_800, 50, step=1000)
    other = turns(offset + 1_005_400, 1_000_000, 1_010_800, 50, step=1000)

    seen = sharing(one, other)

    assert seen.overlap == 0
    assert all(4_000 <= switch <= 7_000 for switch in seen.switches)
    assert all(999_000 <= length <= 1_001_000 for length in seen.slices)


def test_two_that_are_never_interrupted_overlap_all_the_time() -> None:
    one = Timeline(BEGIN, BEGIN + 1000 * MS, ())
    other = Timeline(BEGIN + 200 * MS, BEGIN + 1200 * MS, ())

    assert sharing(one, other) == Sharing(800 * MS, (), (), 800 * MS)
    assert "overlapped 800.0 ms, 100.0% of the time" in shared(one, other).said


def test_time_that_two_share_in_part_is_overlap_and_no_switch() -> None:
    one = turns(0, 10 * MS, 10 * MS, 11)
    other = turns(9 * MS, 10 * MS, 10 * MS, 11)

    seen = sharing(one, other)

    assert seen.overlap == 11 * MS  # a millisecond at each end of the first's
    assert set(seen.switches) == {1 * MS}


def test_a_process_that_returns_after_nobody_makes_no_switch() -> None:
    one = Timeline(BEGIN, BEGIN + 100 * MS, ((BEGIN + 40 * MS, BEGIN + 50 * MS),))
    other = Timeline(BEGIN, BEGIN + 100 * MS, ((BEGIN + 1, BEGIN + 100 * MS - 1),))

    assert sharing(one, other).switches == ()


FIRST = turns(0, MS, MS, 100)
COARSE = turns(0, 0, 32_000, 5000)


@pytest.mark.parametrize(
    ("one", "other", "error", "said"),
    [
        (FIRST, turns(190 * MS, MS, MS, 100), Lost, "were on the GPU for 9.0 ms only"),
        (COARSE, COARSE, Lost, "clock stands still for longer"),
        *(
            (FIRST, Timeline(*wrong), CheckFailed, "wrote no times, or times that go back")
            for wrong in (
                (0, 0, ()),
                (BEGIN, BEGIN - 1, ()),
                (BEGIN, BEGIN + 9, ((BEGIN + 4, BEGIN + 3),)),
                (BEGIN, BEGIN + 9, ((BEGIN + 4, BEGIN + 10),)),
            )
        ),
    ],
)
def test_timelines_that_cannot_be_compared_say_nothing(
    one: Timeline, other: Timeline, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        shared(one, other)


def looks(*rows: Sequence[tuple[int, int, int]], answer: int = 0) -> list[Row]:
    """At 10 s of the clock, and each 50 ms after that."""
    return [
        {"at": 10_000_000 + 50_000 * number, "answer": answer, "rows": seen}
        for number, seen in enumerate(rows)
    ]


def test_samples_show_whom_they_name_and_how_far_apart_they_are() -> None:
    found = samples(
        looks(
            [(7, 9_900_000, 50)],  # of before
            [(7, 10_020_000, 50), (8, 0, 0)],
            [(7, 10_020_000, 50), (8, 10_120_000, 50)],
            [(7, 10_220_000, 50), (8, 10_220_000, 50), (9, 10_220_000, 1)],
        ),
        {7, 8},
    )

    assert found.figures["apart_ms"] == {"p10": 100, "p50": 100, "p90": 100}
    assert "3 stamps, 100 ms apart (p10 100, p90 100); 1 of them name more than one" in found.said
    assert "2 of our 2 processes are named, 1 others" in found.said


@pytest.mark.parametrize("answer", [3, 6])
def test_nvml_without_samples_of_processes_is_told(answer: int) -> None:
    found = samples(looks([], [], answer=answer), {7})

    said = f"NVML has no samples of processes: answers [{answer}]"
    assert (found.verdict, found.said) == (Verdict.FIGURE, said)


@pytest.mark.parametrize(
    ("seen", "error", "said"),
    [
        (looks([], [], answer=999), Lost, r"only answered \[999\]"),
        (looks([(7, 10_020, 50)]), CheckFailed, "1 samples, none of them of the time"),
    ],
)
def test_samples_that_are_none_say_nothing(
    seen: list[Row], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        samples(seen, {7})


SPREAD = {"n": 2, "min": 1.0, "p10": 1.0, "p50": 1234.56, "p90": 3.0, "p99": 3.0}
REFUSED = {"n": 2, "result": 801}
GROUP = Group("", "us (p90)", {"one": "first", "other": "second"}, ("p50", "p90"))


@pytest.mark.parametrize(
    ("rows", "verdict", "said"),
    [
        ({"first": SPREAD, "second": SPREAD}, Verdict.FIGURE, "us (p90): one 1235 (3), other 1235"),
        ({"first": SPREAD, "second": REFUSED}, Verdict.FIGURE, "other second answers 801"),
        ({"first": SPREAD}, Verdict.LOST, "gpu_facts did not print: second (it crashed)"),
        ({"first": REFUSED, "second": REFUSED}, Verdict.LOST, "first answers 801; second answers"),
        ({"first": SPREAD, "second": {**SPREAD, "min": -1}}, Verdict.FAIL, "cannot be: second"),
        ({"first": SPREAD, "second": {"n": 0}}, Verdict.FAIL, "cannot be: second"),
    ],
)
def test_a_group_of_facts_is_told_lost_or_failed(
    rows: dict[str, Row], verdict: Verdict, said: str
) -> None:
    facts_of = [{"fact": name, **row} for name, row in rows.items()]
    printed = Printed(facts_of, CheckFailed("it crashed"))

    found = measured(printed, GROUP)

    assert found.verdict is verdict
    assert said in found.said


@pytest.mark.parametrize(
    ("fact", "p50", "can_be"),
    [
        ("event pair, kernel of 500 us, busy stream", 249, False),
        ("event pair, kernel of 500 us, busy stream", 250, True),
        ("event pair, kernel of 500 us, idle stream", 1001, False),
        ("event pair, kernel of 50 us, idle stream", 24, False),
        ("event pair, kernel of 50 us, idle stream", 151, False),
        ("event pair, kernel of 50 us, busy stream", 150, True),
        ("event pair, nothing, busy stream", 0, True),
        ("cuStreamQuery, busy stream", 0, False),
    ],
)
def test_a_spread_is_held_against_what_is_certain(fact: str, p50: float, *, can_be: bool) -> None:
    said = impossible({"fact": fact, "n": 9, "min": 0, "p50": p50})

    assert (said is None) == can_be
    assert said is None or said.startswith(f"{fact}, {p50}")


@pytest.mark.parametrize(
    ("kernels", "loads", "full"),
    [(249, 1, False), (250, 1, True), (1000, 1, True), (1001, 1, False), (125, 2, True)],
)
def test_a_full_load_has_its_part_of_the_time(kernels: int, loads: int, *, full: bool) -> None:
    load = {"ms": 2.0, "percent": 100, "kernels": kernels, "begun_us": 7.0, "ended_us": 1e6 + 7}

    assert is_full(load, loads) == full
    assert is_full({**load, "percent": 30}, loads)


@dataclass(frozen=True, slots=True)
class Run:
    """folder: with what each run of the program printed, and both files of results."""

    folder: Path
    checks: Sequence[Row]

    def figures(self, check: str) -> dict[str, Any]:
        rows = [row["figures"] for row in self.checks if row["check"] == check]
        return {key: value for figures in rows for key, value in figures.items()}


def compiled(folder: Path, sources: Path = SOURCES) -> Path:
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Werror", "-D_GNU_SOURCE"]
    program = folder / "gpu_facts"
    files = sorted(sources.glob("*.c"))
    subprocess.run([*command, "-o", program, *files, "-ldl", "-lpthread"], check=True)
    return program


async def findings(folder: Path, checks: Sequence[Check]) -> Sequence[Row]:
    (folder / CHECKS).unlink(missing_ok=True)
    await conduct(bench_in(folder), "facts", checks)
    return Results(folder).checks()


def bench_in(folder: Path) -> Bench:
    deadline = time.monotonic() + 300
    return Bench(Path(sys.executable), None, folder, Results(folder), folder / "torch", deadline)


def shorten(patch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("SLICES", 0.3), ("PING", 0.3), ("TWO", 2.0), ("ONE", 0.7)):
        patch.setattr(facts, f"{name}_SECONDS", seconds)
    short = {what: [(*load[:2], 1.5) for load in loads] for what, loads in facts.BESIDE.items()}
    patch.setattr(facts, "BESIDE", short)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All checks, in short, on a driver that behaves as real ones are reported to."""
    folder = tmp_path_factory.mktemp("facts")
    compiled(folder)
    described = machine(1, context_bytes=300 << 20, driver=REAL)
    with sim_box(described) as box, pytest.MonkeyPatch.context() as patch:
        for name, value in box.environment(**{SLOWNESS: "10"}).items():
            patch.setenv(name, value)
        patch.setattr(gpu_check.bench, "PROGRAMS", folder)
        shorten(patch)
        return Run(folder, asyncio.run(findings(folder, facts.CHECKS)))


def test_every_fact_is_there_on_the_simulated_driver(simulated: Run) -> None:
    verdicts = {
        row["verdict"]: row
        for row in simulated.checks
        if row["verdict"] != Verdict.ABSENT.value or row["check"] != "pid namespace"
    }

    assert set(verdicts) == {Verdict.FIGURE.value}, verdicts
    errors = {row.get("result", 0) for row in Results(simulated.folder).facts()}
    assert errors <= BUSY


def test_the_gpu_is_warm_before_a_kernel_is_calibrated(simulated: Run) -> None:
    with sim_box(machine(1)) as box:
        begun = time.monotonic()
        command = [str(simulated.folder / "gpu_facts"), "load", "2", "100", "0"]
        subprocess.run(command, env=box.environment(), check=True, capture_output=True)

    assert time.monotonic() - begun >= 0.3


def test_a_pair_of_events_behind_which_the_host_was_late_is_none(tmp_path: Path) -> None:
    shutil.copytree(SOURCES, tmp_path / "late")
    times = tmp_path / "late/times.c"
    source = times.read_text()
    late = source.replace("bool late = ", "usleep(400);\n bool late = ")
    assert late != source
    times.write_text(f"#include <unistd.h>\n{late}")
    program = compiled(tmp_path, tmp_path / "late")

    with (
        sim_box(machine(1)) as box,
        subprocess.Popen(
            [program, "times"], env=box.environment(), stdout=subprocess.PIPE, text=True
        ) as running,
    ):
        assert running.stdout is not None
        line = next(line for line in running.stdout if "nothing, busy stream" in line)
        running.kill()

    assert line.endswith(f'"result":{RAN_EMPTY}}}\n')


def test_slices_and_switches_are_those_of_the_simulated_gpu(simulated: Run) -> None:
    figures = simulated.figures("time slices of two processes")

    assert figures["slice_ms"] == {"p10": 1.024, "p50": 1.024, "p90": 1.024}
    assert figures["switch_us"]["p50"] == 50
    assert figures["overlap_ms"] == 0


def test_events_show_the_floor_of_the_simulated_gpu(simulated: Run) -> None:
    pairs = simulated.figures("times")

    assert pairs["event pair, nothing, busy stream"]["p50"] == 3
    assert pairs["event pair, nothing, idle stream"]["p50"] >= 9
    assert 52 <= pairs["event pair, kernel of 50 us, busy stream"]["p50"] <= 53


def test_a_query_breaks_a_capture_unless_its_thread_is_relaxed(simulated: Run) -> None:
    seen = simulated.figures("captures")

    assert [seen[thread]["end"] for thread in ("plain", "relaxed")] == [901, 0]


def test_nvml_names_the_loads_on_the_simulated_gpu(simulated: Run) -> None:
    figures = simulated.figures("utilisation of two at 100 %")

    assert (figures["ours"], figures["shared"]) == (2, 0)
    assert figures["apart_ms"]["p50"] == pytest.approx(167, abs=1)


NEEDED = {
    "time slices of two processes": [facts.SLICES],
    "times": [name for group in facts.TIMES for name in group.facts.values()],
    "hand-over": ["ping", facts.PING, facts.READY, facts.LOAD],
    "captures": [*facts.CAPTURES.values()],
    "copies": ["copies", facts.COPY, facts.READY, facts.LOAD],
    "memory": [
        *facts.STARTS.facts.values(),
        *facts.MEMORY.values(),
        *facts.SIZES.values(),
    ],
    "utilisation of two at 100 %": [facts.READY, facts.LOAD, facts.SAMPLES],
    "utilisation of one at 30 %": [facts.READY, facts.LOAD, facts.SAMPLES],
}


def without(name: str) -> Callable[[str], str]:
    return lambda line: "" if f'"{name}"' in line else line


def zero(line: str) -> str:
    """Each number of it is 0."""
    return re.sub(r"(?<=[:\[,])-?\d+(\.\d+)?", "0", line)


def wrong(fact: str, field: str, value: float) -> Callable[[str], str]:
    def altered(line: str) -> str:
        return re.sub(rf'(?<="{field}":)[-\d.]+', f"{value}", line) if fact in line else line

    return altered


def replay(
    simulated: Run,
    folder: Path,
    patch: pytest.MonkeyPatch,
    altered: Callable[[str], str],
    trouble: CheckFailed | None = None,
) -> None:
    """The program prints once more what it did in the run above, its lines altered."""
    (folder / "gpu_facts").touch(0o755)
    patch.setenv(SLOWNESS, "10")
    patch.setattr(gpu_check.bench, "PROGRAMS", folder)
    shorten(patch)

    def copy(output: Path) -> None:
        lines = (simulated.folder / output.name).read_text().splitlines()
        output.write_text("\n".join(map(altered, lines)))

    async def lines_of(_: object, __: object, output: Path, ___: float) -> None:
        copy(output)
        if trouble is not None:
            raise trouble

    patch.setattr(facts, "lines_of", lines_of)


@pytest.mark.parametrize("check", facts.CHECKS[:-1], ids=lambda check: check.name)
async def test_a_fact_that_is_not_printed_is_lost_by_name(
    simulated: Run, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NEEDED[check.name]:
        with monkeypatch.context() as patch:
            replay(simulated, tmp_path, patch, without(name))
            found = await findings(tmp_path, [check])

        lost = [row["said"] for row in found if row["verdict"] == Verdict.LOST.value]
        assert [said for said in lost if name in said], (name, found)
        assert len(lost) == 1


@pytest.mark.parametrize("check", facts.CHECKS[:-1], ids=lambda check: check.name)
async def test_a_check_whose_facts_are_all_0_tells_no_figure(
    simulated: Run, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay(simulated, tmp_path, monkeypatch, zero)

    found = await findings(tmp_path, [check])

    assert {row["verdict"] for row in found} <= {Verdict.FAIL.value, Verdict.LOST.value}, found


@pytest.mark.parametrize(
    ("check", "altered", "said"),
    [
        ("hand-over", wrong('"load"', "kernels", 1), "did not keep the GPU busy"),
        ("hand-over", wrong('"load"', "kernels", 99999), "did not keep the GPU busy"),
        ("captures", wrong("a plain thread", "end", 0), "status 2, its end answers 0"),
        ("captures", wrong("a relaxed thread", "end", 901), "status 1, its end answers 901"),
        ("memory", wrong("memory, context", "process_more_mib", 0), "a context takes 0 MiB"),
        ("memory", wrong("memory,", "process_more_mib", 0), "NVML's figure of the process never"),
        ("memory", wrong("1048577 B", "each_free", 1048576), "1048577 B: took 1048576 B of the"),
        ("times", wrong("500 us, busy", "p50", 200), "the calibration or the events are wrong"),
    ],
)
async def test_a_fact_that_cannot_be_fails_by_name(
    simulated: Run,
    check: str,
    altered: Callable[[str], str],
    said: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay(simulated, tmp_path, monkeypatch, altered)

    found = await findings(tmp_path, [one for one in facts.CHECKS if one.name == check])

    (failed,) = [row["said"] for row in found if row["verdict"] == Verdict.FAIL.value]
    assert said in failed


@pytest.mark.parametrize("check", facts.CHECKS[:-1], ids=lambda check: check.name)
async def test_a_program_that_does_not_end_well_is_told_though_it_printed_all(
    simulated: Run, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay(simulated, tmp_path, monkeypatch, str, CheckFailed("it crashed"))

    *_, last = await findings(tmp_path, [check])

    assert (last["verdict"], last["said"]) == (Verdict.FAIL.value, "it crashed")
