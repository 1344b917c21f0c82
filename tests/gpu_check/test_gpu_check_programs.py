"""Others' programs must end behind the shim as they do without it, and go through it."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding, Lost, Verdict
from gpu_check.stages import programs

GIB = 1 << 30
LIMIT = 8 * GIB


def evidence(**told: Any) -> Evidence:
    return Evidence(
        told={"shim": True, "wall_s": 2.0, **told},
        limit=LIMIT,
        peak=LIMIT,
        denied=1,
        launches=7,
        charged_ns=500_000_000,
        processes=1,
        degraded=frozenset(),
        driver=LIMIT,
    )


TOOL = {"status": 0, "found": ["1"], "last": "", "refused": 2}
BARE = {**TOOL, "refused": 0, "wall_s": 1.0}
PAST = {"cuInit": "/lib/libcuda.so.9", "cuLaunchKernel": "/lib/libcuda.so.9"}
ENDS = {"a::one": ["passed", ""], "a::two": ["failed", "ValueError"], "a::three": ["passed", ""]}
FILLED = evidence(held=LIMIT, refused=True, alive=True, worst=1e-6, busy_s=0.5)
POOLED = evidence(held=0, jax="0", worst=1e-6, busy_s=0.5)

Judge = Callable[[Evidence], Finding]


def sanitized(seen: Evidence) -> Finding:
    return programs.SANITIZER.judged(BARE, seen)


def measured(seen: Evidence) -> Finding:
    return programs.NCU.judged({**BARE, "found": ["1,000"]}, seen)


def filled(seen: Evidence) -> Finding:
    return programs.filled({}, seen)


def preallocated(seen: Evidence) -> Finding:
    return programs.preallocated({}, seen)


def profiled(seen: Evidence) -> Finding:
    return programs.profiled({"kernels": 20, "wall_s": 1.0}, seen)


def compared(seen: Evidence) -> Finding:
    return programs.tests_alike({"ends": ENDS, "cut": False}, seen, set())


GOOD: list[tuple[Judge, Evidence]] = [
    (sanitized, evidence(**TOOL)),
    (measured, evidence(**TOOL)),
    (filled, FILLED),
    (preallocated, replace(POOLED, peak=int(LIMIT * 0.82))),
    (profiled, evidence(kernels=20, micros=1.0)),
    (compared, evidence(ends=ENDS, cut=False)),
]


@pytest.mark.parametrize(("judged", "seen"), GOOD)
def test_what_ends_alike_passes(judged: Judge, seen: Evidence) -> None:
    assert judged(seen).verdict is Verdict.PASS


@pytest.mark.parametrize(("judged", "seen"), GOOD)
def test_a_program_that_pays_for_no_kernel_went_past_the_shim(
    judged: Judge, seen: Evidence
) -> None:
    for past in (replace(seen, charged_ns=0), replace(seen, told={**seen.told, "shim": False})):
        assert judged(past).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("judged", "seen", "said"),
    [
        (sanitized, evidence(**TOOL | {"found": ["2"]}), "it sees what it sees without"),
        (sanitized, evidence(**TOOL | {"refused": 0}), "only the limit refuses"),
        (sanitized, evidence(**TOOL | {"status": 1, "last": "why"}), "status 0 (why)"),
        (measured, evidence(**TOOL | {"found": ["1", "2"]}), "it sees what it sees without"),
        (measured, evidence(**TOOL | {"found": ["0.0"]}), "each figure is above 0"),
        (measured, evidence(**TOOL | {"shim": False, "calls": PAST}), "calls go to libcuda.so.9"),
        (filled, replace(FILLED, peak=LIMIT // 2), "the limit could be filled"),
        (preallocated, replace(POOLED, peak=LIMIT // 2), "75 % of the limit"),
        (preallocated, POOLED, "75 % of the limit"),
        (profiled, evidence(kernels=19, micros=1.0), "as many kernels"),
        (profiled, evidence(kernels=20, micros=0.0), "above 0"),
        (
            compared,
            evidence(ends={**ENDS, "a::one": ["failed", "X"]}, cut=False),
            ": passed, be",
        ),
        (compared, evidence(ends={"a::one": ["passed", ""]}, cut=False), "behind the shim missing"),
    ],
)
def test_what_ends_otherwise_fails_and_is_named(judged: Judge, seen: Evidence, said: str) -> None:
    found = judged(seen)

    assert found.verdict is Verdict.FAIL
    assert said in found.said


def test_a_test_that_one_side_had_no_time_for_is_counted_and_not_compared() -> None:
    seen = evidence(ends={"a::one": ["passed", ""]}, cut=True)

    found = compared(seen)

    assert found.verdict is Verdict.PASS
    assert "1 tests end alike (1 pass), 0 do not; 2 out of time" in found.said


def test_a_test_that_ends_alike_at_the_second_try_is_no_failure() -> None:
    seen = evidence(ends={**ENDS, "a::one": ["failed", "X"]}, cut=False)

    found = programs.tests_alike({"ends": ENDS, "cut": False}, seen, {"a::one"})

    assert (found.verdict, found.figures["again"]) == (Verdict.PASS, ["a::one"])


def test_tests_of_which_none_passes_without_the_shim_say_nothing_of_it() -> None:
    ends = {"a::one": ["failed", "ModuleNotFoundError"]}

    with pytest.raises(Lost, match="does not run here without the shim either: no test passes"):
        programs.tests_alike({"ends": ends, "cut": False}, evidence(ends=ends, cut=False), set())


@pytest.mark.parametrize(
    ("tool", "printed", "found"),
    [
        (programs.SANITIZER, "========= ERROR SUMMARY: 34 errors\n", ["34"]),
        (
            programs.NCU,
            (
                '==PROF== Profiling "spin" - 0: 0%....100% - 1 pass\n'
                '"0","9","python3.12","127.0.0.1","spin","1","13","(1, 1, 1)","0","9.0",'
                '"Command line profiler metrics","gpu__time_duration.sum","ns","6,051,008"\n'
            ),
            ["6,051,008"],
        ),
        (
            programs.GDB,
            (
                "[Switching focus to CUDA kernel 0, grid 1, block (0,0,0), device 0, sm 0]\n"
                "[Inferior 1 (process 4711) exited normally]\n"
            ),
            ["CUDA kernel", "exited normally"],
        ),
    ],
)
def test_what_is_compared_is_found_in_what_a_tool_prints(
    tool: programs.Tool, printed: str, found: list[str]
) -> None:
    assert re.findall(tool.pattern, printed) == found
    assert not tool.proof([])
