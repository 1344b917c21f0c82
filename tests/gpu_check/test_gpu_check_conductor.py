"""Running checks and stages: bounds, trouble, what is left out, and what is told at the end."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpu_check import runner
from gpu_check.bench import WORKLOADS, Bench
from gpu_check.conductor import Check, conduct
from gpu_check.outcome import CheckFailed, Finding, Outcome, Verdict
from gpu_check.process import told
from gpu_check.results import Results
from gpu_check.stages.runtime import complaint, narrow

from gpumanager.virtual.processes import find

FINE = Finding(Verdict.PASS, "fine")


async def fine(_: Bench) -> AsyncIterator[Finding]:
    yield FINE


async def failing(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    raise CheckFailed("the program\ndid not")


async def hanging(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    await asyncio.Event().wait()


async def mistaken(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    raise IndexError("worst")


def bench(folder: Path, seconds: float = 60.0) -> Bench:
    """One whose checks use no rooms; PyTorch was imported."""
    (folder / "torch.json").write_text('{"error": null}')
    deadline = time.monotonic() + seconds
    python = Path("/usr/bin/python3")
    made = Bench(python, None, folder, Results(folder), folder / "torch.json", deadline)
    has = cast("Any", SimpleNamespace(has=lambda module: module == "torch"))
    made._made = {True: has}
    return made


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (Check("failing", 5, failing), "the program did not"),
        (Check("hanging", 0.05, hanging), "not finished within 0.05 s"),
        (Check("mistaken", 5, mistaken), "the check itself failed: IndexError('worst')"),
    ],
)
async def test_trouble_is_one_failure_and_the_rest_goes_on(
    tmp_path: Path, check: Check, said: str
) -> None:
    first, second = await conduct(bench(tmp_path), "a stage", [check, Check("fine", 5, fine)])

    before, trouble = first.findings
    assert (before, trouble.verdict, trouble.said) == (FINE, Verdict.FAIL, said)
    assert second.findings == (FINE,)


async def test_a_mistake_of_a_check_is_told_with_its_traceback(tmp_path: Path) -> None:
    (outcome,) = await conduct(bench(tmp_path), "a stage", [Check("mistaken", 5, mistaken)])

    assert 'raise IndexError("worst")' in outcome.findings[1].figures["traceback"]


async def test_what_a_check_found_is_written_before_the_next_begins(tmp_path: Path) -> None:
    here = bench(tmp_path)
    seen: list[int] = []

    async def counting(_: Bench) -> AsyncIterator[Finding]:
        seen.append(len(here.results.checks()))
        yield FINE

    await conduct(here, "a stage", [Check("fine", 5, fine), Check("counting", 5, counting)])

    assert seen == [1]
    rows = here.results.checks()
    assert [(row["stage"], row["check"], row["verdict"]) for row in rows] == [
        ("a stage", "fine", "pass"),
        ("a stage", "counting", "pass"),
    ]


async def test_what_python_lacks_is_left_out_and_told(tmp_path: Path) -> None:
    check = Check("CuPy", 5, fine, ("torch", "cupy"))

    (outcome,) = await conduct(bench(tmp_path), "a stage", [check])

    assert outcome.findings == (Finding(Verdict.SKIP, "/usr/bin/python3 has no cupy"),)


async def test_a_pytorch_that_cannot_be_imported_is_no_fault_of_the_shim(
    tmp_path: Path,
) -> None:
    here = bench(tmp_path)
    here.torch.write_text('{"error": "ImportError()"}')

    (outcome,) = await conduct(here, "a stage", [Check("PyTorch", 5, fine, ("torch",))])

    (found,) = outcome.findings
    said = "PyTorch cannot be imported: ImportError()"
    assert (found.verdict, found.said) == (Verdict.SKIP, said)


async def test_a_check_waits_for_the_first_import_of_pytorch(tmp_path: Path) -> None:
    here = bench(tmp_path)
    here.torch.unlink()
    conducting = asyncio.create_task(
        conduct(here, "a stage", [Check("PyTorch", 5, fine, ("torch",))])
    )
    await asyncio.sleep(0)

    here.torch.write_text('{"error": null}')

    (outcome,) = await conducting
    assert outcome.findings == (FINE,)


async def test_what_there_is_no_time_for_is_left_out_and_told(tmp_path: Path) -> None:
    checks = [Check("short", 5, fine), Check("long", 900, fine)]

    short, long = await conduct(bench(tmp_path, seconds=20), "a stage", checks)

    assert short.findings == (FINE,)
    assert long.findings == (Finding(Verdict.SKIP, "no time is left for it"),)


async def test_a_check_is_bound_by_the_end_of_its_stage(tmp_path: Path) -> None:
    (outcome,) = await conduct(bench(tmp_path, 1.5), "a stage", [Check("hanging", 4, hanging)])

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


def test_every_workload_is_python() -> None:
    names = set()
    for path in WORKLOADS.glob("*.py"):
        compile(path.read_text(), str(path), "exec")
        names.add(path.name)
    assert {"accepts.py", "memory.py", "player.py"} <= names


def test_all_stages_leave_two_minutes_of_what_they_may_take() -> None:
    assert sum(runner.SECONDS.values()) + 120 <= runner.WHOLE_SECONDS


STAGES = Path(__file__).with_name("programs") / "stages.py"


def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Of a program that stands for the check's; one of its stages fails, one does not end."""
    monkeypatch.setitem(runner.SECONDS, "entries", 1)
    monkeypatch.setattr(runner, "END_SECONDS", 0)
    no_python = Path("/no/such/python")
    out = tmp_path / "out"
    passed = runner.run(runner.Options(STAGES, stages, no_python, None, out, 500))
    rows = Results(out).checks()
    assert passed == all(row["verdict"] != "FAIL" for row in rows)
    return {stage: [row for row in rows if row["stage"] == stage] for stage in stages}


def test_a_stage_that_fails_or_does_not_end_loses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(tmp_path, monkeypatch, ("machine", "facts", "entries", "memory"))

    assert [[row["verdict"] for row in stage] for stage in rows.values()] == [
        ["pass"],
        ["FAIL"],
        ["FAIL"],
        ["pass"],
    ]
    assert rows["facts"][0]["said"] == "the stage ended with status 3: about to facts"
    assert rows["entries"][0]["said"].startswith("the stage did not end")
    told = capsys.readouterr().out.splitlines()
    assert told[0].split("; ")[1] == "2 FAIL, 0 figure, 0 skip, 2 pass"
    assert [line.split()[0] for line in told[1:]] == ["FAIL", "FAIL", "pass", "pass"]


def test_results_are_few_files_and_all_that_was_found_is_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, ("machine",))

    out = tmp_path / "out"
    names = sorted(path.name for path in out.iterdir())
    assert names == ["checks.jsonl", "facts.jsonl", "gpu-check.json", "logs.tar.gz"]
    whole = json.loads((out / "gpu-check.json").read_text())
    assert whole["passed"]
    (first_import,) = whole["facts"]
    assert "No such file" in first_import["error"] or "ended" in first_import["error"]


def test_the_summary_has_at_most_sixty_lines_and_failures_come_first(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for number in range(80):
        verdict = Verdict.FAIL if number == 79 else Verdict.PASS
        outcome = Outcome(f"check {number}", (Finding(verdict, "long " * 100),), 1.0)
        results.outcome("a stage", outcome)
    options = runner.Options(tmp_path, (), tmp_path, None, tmp_path, 1)

    lines = runner.summary(results, options, 12.3)

    assert len(lines) == 60
    assert max(map(len, lines)) <= runner.WIDTH
    assert lines[1].startswith("FAIL   a stage: check 79: long")
    assert lines[-1] == "… and 22 more in checks.jsonl"


@pytest.mark.parametrize("guilty", [{"cuMemFree"}, {"a0", "a63"}, {"a1", "a2", "a40"}, set()])
async def test_hooks_that_a_runtime_refuses_are_found_by_halves(guilty: set[str]) -> None:
    suspects = sorted({f"a{number}" for number in range(64)} | {"cuMemFree"})

    async def fails(unhooked: Sequence[str]) -> bool:
        return not guilty <= set(unhooked)

    found, runs = await narrow(suspects, fails)

    assert set(found) == guilty
    assert runs < len(suspects)


async def test_where_leaving_all_hooks_out_does_not_help_all_stay_suspects() -> None:
    async def fails(_: Sequence[str]) -> bool:
        return True

    assert await narrow(["a", "b"], fails) == (["a", "b"], 1)


def test_a_runtime_that_answers_an_error_is_quoted() -> None:
    seen = {"results": {"cudaFree": 0, "cudaMalloc": 103}, "shim": True}

    assert complaint(seen, shim=True) == "cudaMalloc answers 103"
    assert complaint({"results": {}, "shim": True}, shim=True) is None
    around = "the shim is not in the program"
    assert complaint({"results": {}, "shim": False}, shim=True) == around
    assert complaint({"failed": "ended by SIGSEGV"}, shim=True) == "ended by SIGSEGV"
