"""Programs of others: each is run without the shim, and then behind it, where it must end alike.

What fails without the shim, too, says nothing of the shim: it is lost. Tools that look into a
program (a sanitizer, a profiler, a debugger) get a small one of ours, and must see the same in it.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpu_check import judge
from gpu_check.bench import ROOT, WORKLOADS, Bench, patient, tool
from gpu_check.conductor import Check
from gpu_check.evidence import Evidence
from gpu_check.judge import (
    filling,
    loaded,
    memory_figures,
    memory_said,
    paid,
    time_figures,
    time_said,
)
from gpu_check.outcome import CheckFailed, Finding, Lost, passed_if
from gpu_check.place import UNTHROTTLED
from gpu_check.process import lines_of, told
from gpu_check.stages.runtime import BARE, LIMITED, MOST_MIB, met

SOURCES: Final = WORKLOADS.with_name("programs")
PLUGINS: Final = ROOT / "tests" / "clients" / "inside"
"""Of pytest: they write how each test ends."""

SECONDS: Final = 30.0
"""Bound of one run, which most need a fifth of."""

MORE: Final = 64
"""MiB by which an allocation is over the limit."""

PREALLOCATED: Final = (0.73, 0.9)
"""Parts of the limit: XLA takes 75 % at once, and the driver its own beside it."""

TESTS_SECONDS, AGAIN_SECONDS, REST_SECONDS = 22.0, 10.0, 3.0
SHOWN: Final = 10
"""Tests that are named."""

PAID: Final = "its kernels are paid for"

Told = Mapping[str, Any]
Words = Sequence[str | Path]


async def bare(bench: Bench, what: str, command: Words, **environment: str) -> Told:
    """What a program tells without the shim; raises Lost where it fails even then."""
    place = await bench.place()
    outside = place.outside() | environment
    try:
        answer = await told(command, outside, place.output("bare"), SECONDS)
    except CheckFailed as failed:
        raise _not_here(str(failed)) from failed
    if not (answer.get("alive", True) and answer.get("same", True)):
        raise _not_here("its results are wrong")
    bench.results.fact("program", program=what, side="bare", wall_s=answer["wall_s"])
    return answer


async def behind(
    bench: Bench, what: str, command: Words, *, fills: bool = False, **environment: str
) -> Evidence:
    """What it shows with the shim, which throttles nothing; raises CheckFailed and Lost.
    fills: with the smaller memory limit."""
    place = await bench.place()
    room = await place.limit(UNTHROTTLED, place.filled() if fills else place.computing())
    inside = place.inside(room) | environment
    seen = await place.watch(room, command, inside, SECONDS)
    bench.results.fact("program", program=what, side="behind", wall_s=seen.told["wall_s"])
    return seen


def _not_here(why: str) -> Lost:
    return Lost(f"does not run here without the shim either: {why}")


@dataclass(frozen=True, slots=True)
class Program:
    """A script that uses a package of others. fills: it takes memory until it is refused; without
    the shim twice the limit. words: of one that does not."""

    name: str
    script: str
    judged: Callable[[Told, Evidence], Finding]
    fills: bool = False
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    async def run(self, bench: Bench) -> AsyncIterator[Finding]:
        place = await bench.place()
        words = (str(2 * place.filled() >> 20),) if self.fills else self.words
        command = (str(place.machine.python), str(WORKLOADS / self.script), *words)
        without = await bare(bench, self.name, command, **self.environment)
        seen = await behind(bench, self.name, command, fills=self.fills, **self.environment)
        yield self.judged(without, seen)


@dataclass(frozen=True, slots=True)
class Tool:
    """words: before the program. pattern: of what is compared in the output, where `proof` must be
    found without the shim. what: it is called in the summary. measures: these are figures above 0,
    of which only the number is compared.
    """

    name: str
    words: tuple[str, ...]
    pattern: str
    what: str
    proof: Callable[[Sequence[str]], bool]
    measures: bool = False

    async def run(self, bench: Bench) -> AsyncIterator[Finding]:
        place = await bench.place()
        python, more = str(place.machine.python), (place.filled() >> 20) + MORE
        program = (python, str(WORKLOADS / "few.py"), str(KERNELS), str(more))
        under = (python, str(WORKLOADS / "under.py"), self.pattern, tool(self.name))
        command = (*under, *self.words, *program)
        without = await bare(bench, self.name, command)
        if without["status"] != 0 or not self.proof(without["found"]):
            raise _not_here(f"status {without['status']}, {without['last']}")
        yield self.judged(without, await behind(bench, self.name, command, fills=True))

    def judged(self, without: Told, seen: Evidence) -> Finding:
        found, expected = seen.told["found"], without["found"]
        alike = len(found) == len(expected) if self.measures else found == expected
        answers = without.get("refused"), seen.told.get("refused")
        conditions = {
            **loaded(seen),
            f"it ends with status 0 ({seen.told['last']})": seen.told["status"] == 0,
            "it sees what it sees without the shim": alike,
            "only the limit refuses more than the limit": answers == (0, judge.OUT_OF_MEMORY),
            PAID: seen.charged_ns > 0,
        }
        if self.measures:
            conditions["each figure is above 0"] = all(float(one.replace(",", "")) for one in found)
        before = "as" if alike else f"{self._shown(expected)}"
        said = (
            f"{self.what}: {self._shown(found)}, {before} without the shim; {_took(without, seen)}"
        )
        calls = {name: Path(file).name for name, file in seen.told.get("calls", {}).items()}
        if not seen.shim:
            said += f"; its calls go to {', '.join(sorted(set(calls.values()))) or 'no file known'}"
        figures = {
            "bare": expected,
            "behind": found,
            "charged_ns": seen.charged_ns,
            "peak": seen.peak,
            "launches": seen.launches,
            "processes": seen.processes,
            "calls": calls,
        }
        return passed_if(conditions, said, figures)

    def _shown(self, found: Sequence[str]) -> str:
        return str(len(found)) if self.measures else " and ".join(found) or "none"


async def by_nvcc(bench: Bench) -> AsyncIterator[Finding]:
    """With the runtime linked in, as nvcc does unless it is told otherwise."""
    program = bench.work / "runtime-nvcc"
    compiler = (tool("nvcc"), "-DSTATIC_RUNTIME", "-Xcompiler", "-std=gnu11")
    command = (*compiler, "-o", str(program), str(SOURCES / "runtime.c"))
    place = await bench.place()
    try:
        await lines_of(command, place.outside(), bench.log("nvcc"), SECONDS)
    except CheckFailed as failed:
        raise Lost(f"nvcc compiles nothing here: {failed}") from failed
    async for finding in met(bench, "nvcc", [program, "-", str(MOST_MIB)], (BARE, LIMITED)):
        yield finding


async def by_jax(bench: Bench) -> AsyncIterator[Finding]:
    for about, program in JAX.items():
        async for finding in program.run(bench):
            yield replace(finding, about=about)


async def numba_tests(bench: Bench) -> AsyncIterator[Finding]:
    """Both sides at the same time: no test here is one of speed. What differs is run once more."""
    without, seen = await _numba_tests(bench, TESTS_SECONDS, [])
    unlike, steady = compared(without, seen.told).unlike, set[str]()
    if unlike and bench.left > patient(AGAIN_SECONDS + REST_SECONDS):
        alone, behind_alone = await _numba_tests(bench, AGAIN_SECONDS, unlike)
        steady = set(unlike) - set(compared(alone, behind_alone.told).unlike)
    yield tests_alike(without, seen, steady)


async def _numba_tests(bench: Bench, seconds: float, only: Sequence[str]) -> tuple[Told, Evidence]:
    place = await bench.place()
    bound = min(patient(seconds), bench.left - patient(REST_SECONDS))
    script = (str(place.machine.python), str(WORKLOADS / "numba_tests.py"))
    command = (*script, str(bound), str(PLUGINS), json.dumps(only))
    what = "tests of numba-cuda"
    return await asyncio.gather(bare(bench, what, command), behind(bench, what, command))


def filled(_: Told, seen: Evidence) -> Finding:
    """By a framework whose memory grows as it needs it; and what it launched."""
    right = {"its results are right": seen.told.get("worst", 0) < judge.LARGEST_ERROR}
    figures = memory_figures(seen) | time_figures(seen)
    return passed_if(
        {**filling(seen), **paid(seen), **right}, f"{memory_said(seen)}; {time_said(seen)}", figures
    )


def preallocated(_: Told, seen: Evidence) -> Finding:
    least, most = PREALLOCATED
    part, worst = seen.peak / seen.limit, seen.told["worst"]
    conditions = {
        **loaded(seen),
        **paid(seen),
        "its results are right": worst < judge.LARGEST_ERROR,
        "it takes 75 % of the limit": least <= part <= most,
    }
    said = f"JAX {seen.told['jax']} and the driver hold {part:.1%} of the limit; {time_said(seen)}"
    return passed_if(conditions, said, memory_figures(seen) | time_figures(seen) | {"worst": worst})


def profiled(without: Told, seen: Evidence) -> Finding:
    kernels, micros = seen.told["kernels"], seen.told["micros"]
    if without["kernels"] == 0:
        raise _not_here("it sees no kernels")
    conditions = {
        **loaded(seen),
        "it sees as many kernels as without the shim": kernels == without["kernels"],
        "their times are above 0": micros > 0,
        PAID: seen.charged_ns > 0,
    }
    said = f"kernels: {kernels} in {micros / 1e3:.1f} ms, {without['kernels']} without the shim"
    figures = {**seen.told, "charged_ns": seen.charged_ns}
    return passed_if(conditions, f"{said}; {_took(without, seen)}", figures)


def _took(without: Told, seen: Evidence) -> str:
    return f"{without['wall_s']:.1f} s without it, {seen.told['wall_s']:.1f} s behind it"


@dataclass(frozen=True, slots=True)
class Compared:
    """Names of tests. late: those that ended on one side, when time was out on the other."""

    alike: list[str]
    unlike: list[str]
    late: list[str]


def compared(without: Told, told: Told) -> Compared:
    """`ends` of both: how each test ended. `cut`: time ran out."""
    ends, others = without["ends"], told["ends"]
    late = {name for name in ends.keys() - others.keys() if told["cut"]}
    late |= {name for name in others.keys() - ends.keys() if without["cut"]}
    names = sorted((ends.keys() | others.keys()) - late)
    unlike = [name for name in names if ends.get(name) != others.get(name)]
    return Compared([name for name in names if name not in unlike], unlike, sorted(late))


def tests_alike(without: Told, seen: Evidence, steady: set[str]) -> Finding:
    """steady: those that ended alike when they were run again."""
    tests = compared(without, seen.told)
    passed = [name for name in tests.alike if without["ends"][name][0] == "passed"]
    if not passed:
        counts = Counter(" ".join(end).strip() for end in without["ends"].values())
        (way, _), *_ = counts.most_common(1) or [("none ended", 0)]
        raise _not_here(f"no test passes of {len(without['ends'])}; most often: {way}")
    ways = {
        name: [" ".join(one["ends"].get(name, ["missing"])).strip() for one in (without, seen.told)]
        for name in tests.unlike
        if name not in steady
    }
    named = "; ".join(
        f"{name.rpartition('::')[2]}: {before}, behind the shim {after}"
        for name, (before, after) in list(ways.items())[:SHOWN]
    )
    conditions = {
        **loaded(seen),
        f"all tests end as without the shim ({named})": not ways,
        PAID: seen.charged_ns > 0,
    }
    said = f"{len(tests.alike)} tests end alike ({len(passed)} pass), {len(ways)} do not"
    said += f"; {len(steady)} do at the second try" if steady else ""
    said += f"; {len(tests.late)} out of time" if tests.late else ""
    figures = {"passed": len(passed), "unlike": ways, "late": tests.late, "again": sorted(steady)}
    return passed_if(conditions, said, figures | {"charged_ns": seen.charged_ns})


KERNELS: Final = 5
SANITIZER: Final = Tool(
    "compute-sanitizer",
    (),
    r"ERROR SUMMARY: (\d+) error",
    "errors",
    lambda found: any(map(int, found)),  # of the one call that the driver refuses
)
NCU: Final = Tool(
    "ncu",
    (
        *("--clock-control", "none", "--metrics", "gpu__time_duration.sum"),
        *("--csv", "--print-units", "base"),
    ),
    r'"gpu__time_duration\.sum","[^"]*","([\d.,]+)"',
    "kernels profiled",
    lambda found: len(found) == KERNELS,
    measures=True,
)
GDB: Final = Tool(
    "cuda-gdb",
    (
        *("-batch", "-nx", "-ex", "set cuda break_on_launch application", "-ex", "run"),
        # The exit status is that of the last command.
        *("-ex", "set cuda break_on_launch none", "-ex", "continue", "-ex", "echo", "--args"),
    ),
    r"(?<=Switching focus to )CUDA kernel|exited normally",
    "it tells of",
    lambda found: "exited normally" in found,
)
CUDA: Final = {"JAX_PLATFORMS": "cuda"}
ALONE: Final = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
JAX: Final = {
    "75 % at once": Program("JAX", "jax_arrays.py", preallocated, words=("0",), environment=CUDA),
    "no pool": Program("JAX, no pool", "jax_arrays.py", filled, True, environment=CUDA | ALONE),
}
CUPY: Final = Program("CuPy", "cupy_arrays.py", filled, fills=True)
TRITON: Final = Program("Triton", "triton_add.py", lambda _, seen: judge.triton(seen))
PROFILER: Final = Program("torch.profiler", "torch_profile.py", profiled)

CHECKS: Final = (
    Check("JAX", 60, by_jax, ("jax",)),
    Check("CuPy", 20, CUPY.run, ("cupy",)),
    Check("nvcc", 30, by_nvcc),
    Check("ncu", 30, NCU.run),
    Check("compute-sanitizer", 30, SANITIZER.run),
    Check("cuda-gdb", 30, GDB.run),
    Check("numba-cuda, its own tests", 40, numba_tests, ("numba_cuda", "pytest")),
    Check("Triton", 30, TRITON.run, ("torch", "triton")),
    Check("torch.profiler", 30, PROFILER.run, ("torch",)),
)
