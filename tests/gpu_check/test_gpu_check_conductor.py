"""Running the checks of `make gpu-check`: bounds, trouble, what is left out, and the report."""

import asyncio
import io
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from gpu_check import report
from gpu_check.checks import DRIVER_ONLY, WITH_TORCH, Check, chosen
from gpu_check.conductor import conduct
from gpu_check.machine import WORKLOADS, Machine
from gpu_check.outcome import CheckFailed, Finding, Outcome, Verdict
from gpu_check.place import Place
from gpu_check.process import complaint, told

from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB, Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.processes import find

FINE = Finding(Verdict.PASS, "fine")
MACHINE = Machine(
    cuda=Path("/driver/libcuda.so.1"),
    ml=Path("/driver/libnvidia-ml.so.1"),
    gpu=GpuUUID("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
    memory=Bytes(16 * GIB),
    python=Path("/usr/bin/python3"),
    modules=frozenset({"torch"}),
    driver_only=False,
    said={"driver": "555.58.02"},
)


async def fine(_: Place) -> AsyncIterator[Finding]:
    yield FINE


async def failing(_: Place) -> AsyncIterator[Finding]:
    yield FINE
    raise CheckFailed("the program\ndid not")


async def hanging(_: Place) -> AsyncIterator[Finding]:
    yield FINE
    await asyncio.Event().wait()


async def talking_nonsense(_: Place) -> AsyncIterator[Finding]:
    yield FINE
    raise KeyError("worst")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """One whose checks use neither a manager nor a room."""
    return Place(MACHINE, tmp_path, cast("VirtualSockets", None), {})


async def run(place: Place, *checks: Check, seconds: float = 60) -> list[Outcome]:
    said: list[Outcome] = []
    outcomes = await conduct(place, checks, said.append, deadline=time.monotonic() + seconds)
    assert said == outcomes
    return outcomes


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (Check("failing", 5, failing), "the program did not"),
        (Check("hanging", 0.05, hanging), "not finished within 0.05 s"),
        (Check("nonsense", 5, talking_nonsense), "no sense in its answer: KeyError('worst')"),
    ],
)
async def test_trouble_is_one_failure_and_the_rest_goes_on(
    place: Place, check: Check, said: str
) -> None:
    first, second = await run(place, check, Check("fine", 5, fine))

    assert first.findings == (FINE, Finding(Verdict.FAIL, said))
    assert second.findings == (FINE,)


async def test_what_python_lacks_is_left_out_and_said(place: Place) -> None:
    (outcome,) = await run(place, Check("CuPy", 5, fine, ("torch", "cupy")))

    assert outcome.findings == (Finding(Verdict.SKIP, "/usr/bin/python3 has no cupy"),)


async def test_what_there_is_no_time_for_is_left_out_and_said(place: Place) -> None:
    short, long = await run(place, Check("short", 5, fine), Check("long", 900, fine), seconds=20)

    assert short.findings == (FINE,)
    assert long.findings == (Finding(Verdict.SKIP, "no time is left for it"),)


async def test_a_check_is_bound_by_the_end_of_all(place: Place) -> None:
    (outcome,) = await run(place, Check("hanging", 4, hanging), seconds=1.5)

    assert outcome.findings == (FINE, Finding(Verdict.SKIP, "no time was left to finish it"))


async def ask(script: str, tmp_path: Path, seconds: float = 30) -> dict[str, object]:
    command = [sys.executable, "-c", script]
    return await told(command, os.environ, tmp_path / "output.log", seconds)


async def test_a_programs_lines_of_json_are_one_answer(tmp_path: Path) -> None:
    script = """print("warning: {"); print('{"a": 1}'); print('{"b": [2]}')"""

    assert await ask(script, tmp_path) == {"a": 1, "b": [2]}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("1/0", "exit status 1: .*ZeroDivisionError: division by zero"),
        ("import os; os.abort()", "ended by SIGABRT"),
        ("print('hello')", "ended without an answer: hello"),
        ("pass", "ended without an answer: it said nothing"),
    ],
)
async def test_a_program_that_fails_is_told_with_its_last_words(
    script: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckFailed, match=said):
        await ask(script, tmp_path)


async def test_a_program_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """However slow the machine is: more time where the child had not begun in it."""
    pid = tmp_path / "pid"
    child = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"

    for seconds in (1, 5, 60):
        with pytest.raises(CheckFailed, match=f"did not end within {seconds} s"):
            await ask(script, tmp_path, seconds)
        if pid.exists() and pid.read_text():
            break

    async with asyncio.timeout(120):  # the kernel ends it in its own time
        while find(int(pid.read_text())) is not None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def test_a_compilers_first_error_is_what_is_told() -> None:
    output = "gcc -Werror -o x y.c\ny.c:1:1: error: unknown type\ny.c:2:1: error: another"

    assert complaint(output) == "y.c:1:1: error: unknown type"
    assert complaint("gcc: killed") == "gcc: killed"


def test_every_workload_of_a_check_is_there_and_is_python() -> None:
    for path in WORKLOADS.glob("*.py"):
        compile(path.read_text(), str(path), "exec")
    names = [path.name for path in WORKLOADS.glob("*.py")]
    assert {"accepts.py", "memory.py", "player.py"} <= set(names)


def test_all_bounds_are_said_and_the_quick_ones_fit_in_eight_minutes() -> None:
    names = [check.name for check in WITH_TORCH]
    assert len(set(names)) == len(names)
    assert {check.name for check in DRIVER_ONLY} <= set(names)
    assert sum(check.seconds for check in chosen(driver_only=True, quick=True)) < 480


OUTCOMES = [
    Outcome("memory limit", (Finding(Verdict.PASS, "3072 MiB [held]", {"peak": 7}),), 2.0),
    Outcome(
        "share",
        (
            Finding(Verdict.FAIL, "30: 20.0", {"got": [20.0]}, "2 ms, async"),
            Finding(Verdict.FIGURE, "30: 30.0", {}, "2 ms, sync"),
        ),
        9.0,
    ),
    Outcome("CuPy", (Finding(Verdict.SKIP, "no cupy"),), 0.0),
]


def test_the_table_has_a_row_for_each_finding() -> None:
    out = io.StringIO()

    report.show(report.console(out), "A GPU, driver 555", OUTCOMES)

    text = out.getvalue()
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[0] == "A GPU, driver 555"
    assert rows[2:6] == [
        "memory limit pass 3072 MiB [held]",
        "share, 2 ms, async FAIL 30: 20.0",
        "share, 2 ms, sync figure 30: 30.0",
        "CuPy skip no cupy",
    ]


def test_the_json_has_every_figure() -> None:
    written = json.loads(json.dumps(report.as_json({"gpu": "A GPU"}, OUTCOMES, 12.34)))

    assert (written["gpu"], written["passed"], written["seconds"]) == ("A GPU", False, 12.3)
    share = written["checks"][1]
    assert share["findings"][0] == {
        "verdict": "fail",
        "said": "30: 20.0",
        "about": "2 ms, async",
        "figures": {"got": [20.0]},
    }


def test_what_is_left_out_or_only_measured_does_not_fail() -> None:
    assert report.passed([OUTCOMES[0], OUTCOMES[2]])
    assert not report.passed(OUTCOMES)
