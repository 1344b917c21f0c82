"""Running checks and stages: bounds, trouble, what is left out, and what is told at the end."""

import asyncio
import json
import os
import subprocess
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
from gpu_check.outcome import Absent, CheckFailed, Finding, Lost, Verdict
from gpu_check.process import told
from gpu_check.results import Results
from gpu_check.stages.entries import CHECKS as ENTRIES
from gpu_check.stages.runtime import narrow

from gpumanager.limits.processes import find

FINE = Finding(Verdict.PASS, "fine")


async def fine(_: Bench) -> AsyncIterator[Finding]:
    yield FINE


async def failing(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    raise CheckFailed("the program\ndid not")


async def hanging(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    await asyncio.Event().wait()


async def lost(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    raise Lost("the driver is not there")


async def absent(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    raise Absent("no ncu here")


async def silent(_: Bench) -> AsyncIterator[Finding]:
    for finding in list[Finding]():
        yield finding


async def mistaken(_: Bench) -> AsyncIterator[Finding]:
    yield FINE
    raise IndexError("worst")


def bench(folder: Path, seconds: float = 60.0) -> Bench:
    """One whose checks use no rooms; PyTorch was imported."""
    (folder / "torch.json").write_text('{"found": true, "error": null}')
    deadline = time.monotonic() + seconds
    python = Path("/usr/bin/python3")
    made = Bench(python, None, folder, Results(folder), folder / "torch.json", deadline)
    has = cast("Any", SimpleNamespace(has=lambda module: module == "torch"))
    made._place = has
    return made


async def conducted(bench: Bench, *checks: Check) -> dict[str, list[tuple[Verdict, str]]]:
    """What each of these checks found."""
    await conduct(bench, "a stage", checks)
    rows = bench.results.checks()
    return {
        check.name: [
            (Verdict(row["verdict"]), row["said"]) for row in rows if row["check"] == check.name
        ]
        for check in checks
    }


SAID_FINE = (Verdict.PASS, "fine")


@pytest.mark.parametrize(
    ("check", "verdict", "said"),
    [
        (Check("failing", 5, failing), Verdict.FAIL, "the program did not"),
        (Check("hanging", 0.05, hanging), Verdict.LOST, "not finished within 0.05 s"),
        (Check("lost", 5, lost), Verdict.LOST, "the driver is not there"),
        (Check("absent", 5, absent), Verdict.ABSENT, "no ncu here"),
        (
            Check("mistaken", 5, mistaken),
            Verdict.FAIL,
            "the check itself failed: IndexError('worst')",
        ),
    ],
)
async def test_trouble_is_one_finding_and_the_rest_goes_on(
    tmp_path: Path, check: Check, verdict: Verdict, said: str
) -> None:
    found = await conducted(bench(tmp_path), check, Check("fine", 5, fine))

    assert found == {check.name: [SAID_FINE, (verdict, said)], "fine": [SAID_FINE]}


async def test_a_mistake_of_a_check_is_told_with_its_traceback(tmp_path: Path) -> None:
    here = bench(tmp_path)

    await conducted(here, Check("mistaken", 5, mistaken))

    assert 'raise IndexError("worst")' in here.results.checks()[1]["figures"]["traceback"]


async def test_what_a_check_finds_is_written_at_once_and_what_is_left_is_known(
    tmp_path: Path,
) -> None:
    here = bench(tmp_path)
    seen: list[tuple[int, str]] = []

    async def counting(_: Bench) -> AsyncIterator[Finding]:
        for _number in range(2):
            seen.append((len(here.results.checks()), (tmp_path / "planned.json").read_text()))
            yield FINE

    await conduct(here, "a stage", [Check("fine", 5, fine), Check("counting", 5, counting)])

    assert seen == [(1, '["counting"]'), (2, '["counting"]')]
    assert (tmp_path / "planned.json").read_text() == "[]"


@pytest.mark.parametrize(
    ("check", "verdict", "said"),
    [
        (
            Check("CuPy", 5, fine, ("torch", "cupy")),
            Verdict.ABSENT,
            "/usr/bin/python3 has no cupy",
        ),
        (Check("silent", 5, silent), Verdict.LOST, "the check found nothing to say"),
        (Check("long", 900, fine), Verdict.LOST, "no time is left for it"),
    ],
)
async def test_what_cannot_be_found_out_is_told(
    tmp_path: Path, check: Check, verdict: Verdict, said: str
) -> None:
    found = await conducted(bench(tmp_path, seconds=20), Check("short", 5, fine), check)

    assert found == {"short": [SAID_FINE], check.name: [(verdict, said)]}


@pytest.mark.parametrize(
    ("told", "verdict", "said"),
    [
        (
            '{"found": true, "error": "ImportError()"}',
            Verdict.LOST,
            "PyTorch cannot be imported: ImportError()",
        ),
        ('{"found": false, "error": null}', Verdict.ABSENT, "/usr/bin/python3 has no torch"),
        ("", Verdict.LOST, "PyTorch's first import has not ended yet"),
    ],
)
async def test_a_pytorch_that_does_not_come_is_lost_and_one_that_is_not_there_is_absent(
    tmp_path: Path, told: str, verdict: Verdict, said: str
) -> None:
    here = bench(tmp_path)
    here.torch.write_text(told) if told else here.torch.unlink()

    found = await conducted(here, Check("PyTorch", 5, fine, ("torch",)))

    assert found == {"PyTorch": [(verdict, said)]}


async def test_a_check_is_bound_by_the_end_of_its_stage(tmp_path: Path) -> None:
    found = await conducted(bench(tmp_path, 0.5), Check("hanging", 1, hanging))

    before, (verdict, _) = found["hanging"]
    assert (before, verdict) == (SAID_FINE, Verdict.LOST)


async def ask(script: str, tmp_path: Path, seconds: float = 30) -> dict[str, object]:
    command = [sys.executable, "-c", script]
    return await told(command, os.environ, tmp_path / "output.log", seconds)


async def test_a_programs_lines_of_json_are_one_answer(tmp_path: Path) -> None:
    script = """print("warning: {"); print('{"a": 1}'); print('{"b": [2]}')"""

    seen = await ask(script, tmp_path)

    assert seen == {"a": 1, "b": [2], "wall_s": seen["wall_s"]}


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
        with pytest.raises(Lost, match=f"did not end within {seconds} s"):
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


def test_the_two_commands_are_all_stages_and_end_in_time() -> None:
    first, rest = (runner.COMMANDS[name] for name in ("first", "rest"))

    assert first[0] + rest[0] == runner.COMMANDS["all"][0] == tuple(runner.SECONDS)
    parts = runner.parts_of(first[0])
    assert sum(part.seconds for part in parts if not part.by_torch) <= 90
    assert sum(part.seconds for part in parts) <= first[1] == 240
    assert sum(part.seconds for part in runner.parts_of(rest[0])) <= rest[1] == 560


STAGES = Path(__file__).with_name("programs") / "stages.py"


def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: Sequence[str], python: str
) -> tuple[int, list[dict[str, Any]]]:
    """Of a program that stands for the check's; one of its stages fails, one does not end."""
    for stage in stages:
        monkeypatch.setitem(runner.SECONDS, stage, (1 if stage == "entries" else 60, 60))
    monkeypatch.setattr(runner, "END_SECONDS", 0)
    out = tmp_path / "out"
    status = runner.run(runner.Options(STAGES, stages, Path(python), None, out, 500))
    return status, Results(out).checks()


def a_python(tmp_path: Path, imports: str) -> str:
    """One that stands for the workloads'; imports: what it does for its first import of PyTorch."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{imports}\n")
    python.chmod(0o755)
    return str(python)


IMPORTED = """echo '{"found": true, "error": null, "seconds": 1}' >"$3" """


def test_a_stage_that_fails_or_does_not_end_loses_no_other_and_is_lost_by_its_checks_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = ("machine", "facts", "entries", "memory")

    status, rows = run(tmp_path, monkeypatch, stages, a_python(tmp_path, IMPORTED))

    names = [check.name for check in ENTRIES]
    seen = {(row["stage"], row["check"]): row for row in rows}
    assert {key: row["verdict"] for key, row in seen.items()} == {
        ("machine", "c"): "pass",
        ("machine", "torch c"): "pass",
        ("facts", "one"): "pass",
        ("facts", "two"): "LOST",
        ("facts, PyTorch", "stage"): "LOST",
        **{("entries", name): "LOST" for name in names},
        ("entries", "torch c"): "pass",
        ("memory", "c"): "pass",
        ("memory", "torch c"): "pass",
    }
    assert seen["facts", "two"]["said"] == "the stage ended with status 3: about to facts"
    assert all(seen["entries", name]["said"].startswith("the stage did not") for name in names)
    told = capsys.readouterr().out.splitlines()
    assert told[0].split("; ")[1] == "5 LOST, 0 FAIL, 0 figure, 6 pass, 0 absent"
    assert [line.split()[0] for line in told[1:]] == ["LOST"] * 5 + ["pass"] * 6
    assert status == 3


def test_what_needs_pytorch_comes_as_soon_as_its_slow_import_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = f"while ! grep -q machine {tmp_path}/out/checks.jsonl; do sleep 0.05; done; {IMPORTED}"
    stages = ("machine", "shares", "memory")

    status, rows = run(tmp_path, monkeypatch, stages, a_python(tmp_path, waits))

    order = [(row["stage"], row["check"]) for row in rows]
    assert sorted(order) == sorted(
        (stage, f"{kind}c") for stage in stages for kind in ("", "torch ")
    )
    assert order[0] == ("machine", "c")
    assert order.index(("machine", "torch c")) <= 2
    assert status == 0


def test_what_needs_a_pytorch_whose_import_does_not_end_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "IMPORT_SECONDS", 0.5)
    slow = a_python(tmp_path, "exec sleep 600")

    _, rows = run(tmp_path, monkeypatch, ("machine",), slow)

    told = json.loads((tmp_path / "out/gpu-check.json").read_text())
    (importing,) = [row for row in told["facts"] if row["fact"] == "first import of PyTorch"]
    assert importing["error"] == "its first import ended with status 124"
    assert [row["check"] for row in rows] == ["c", "torch c"]


def test_what_there_is_no_time_for_is_lost_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Path(a_python(tmp_path, "exec sleep 600"))
    monkeypatch.setitem(runner.SECONDS, "runtime", (60, 60))
    out = tmp_path / "out"

    status = runner.run(runner.Options(STAGES, ("runtime",), slow, None, out, 3))

    first, *rest = Results(out).checks()
    assert (first["check"], first["verdict"], status) == ("c", "pass", 3)
    assert [row["check"] for row in rest] == ["PyTorch", "PyTorch, 30 and 60 together"]
    assert {row["said"] for row in rest} == {"PyTorch's first import has not ended"}
    assert {row["verdict"] for row in rest} == {"LOST"}


def test_a_check_that_no_stage_has_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, python = tmp_path / "out", Path(a_python(tmp_path, IMPORTED))
    options = runner.Options(STAGES, ("machine",), python, None, out, 60, ("no such",))

    assert runner.run(options) == 3
    assert [row["check"] for row in Results(out).checks()][-1] == "no such"


def test_results_of_an_earlier_run_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stages in (("machine",), ("memory",), ("shares",)):
        run(tmp_path, monkeypatch, stages, a_python(tmp_path, IMPORTED))

    out = tmp_path / "out"
    kept = [Results(out / name).checks()[0]["stage"] for name in ("earlier-1", "earlier-2", "")]
    assert kept == ["machine", "memory", "shares"]
    assert (out / "earlier-1/gpu-check.json").exists()


def test_what_a_stage_leaves_running_is_ended(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True)"
    code = f"""
import os, subprocess, sys, time
sys.path[:0] = {sys.path!r}
from gpu_check import runner
runner.adopt_orphans()
spared = subprocess.Popen(["sleep", "600"])
subprocess.run([sys.executable, "-c", {script!r}], check=True)
begun = len(set(runner._children()))
runner.end_orphans({{spared.pid}})
print(begun, len(set(runner._children())), spared.poll())
spared.kill()
"""
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )

    assert finished.stdout.split() == ["2", "1", "None"]


def test_results_are_few_files_and_all_that_was_found_is_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, ("machine",), "/no/such/python")

    out = tmp_path / "out"
    names = sorted(path.name for path in out.iterdir())
    assert names == ["checks.jsonl", "facts.jsonl", "gpu-check.json", "logs.tar.gz"]
    whole = json.loads((out / "gpu-check.json").read_text())
    assert (whole["passed"], whole["exit_status"]) == (True, 0)
    assert [row["fact"] for row in whole["facts"]] == ["first import of PyTorch", "NVML held open"]


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ((Verdict.PASS, Verdict.FIGURE, Verdict.ABSENT), 0),
        ((Verdict.PASS, Verdict.LOST), 3),
        ((Verdict.LOST, Verdict.FAIL, Verdict.PASS), 1),
        ((), 3),
    ],
)
def test_the_exit_status_tells_what_failed_from_what_was_lost(
    verdicts: Sequence[Verdict], status: int
) -> None:
    assert runner.status_of([{"verdict": verdict.value} for verdict in verdicts]) == status


def test_the_summary_has_at_most_sixty_lines_and_what_was_lost_comes_first(tmp_path: Path) -> None:
    results = Results(tmp_path)
    verdicts = {77: Verdict.ABSENT, 78: Verdict.FAIL, 79: Verdict.LOST}
    for number in range(80):
        verdict = verdicts.get(number, Verdict.PASS)
        results.finding("a stage", f"check {number}", Finding(verdict, "long " * 100), 1.0)
    options = runner.Options(tmp_path, (), tmp_path, None, tmp_path, 1)

    lines = runner.summary(results, options, 12.3)

    assert len(lines) == 60
    assert max(map(len, lines)) <= runner.WIDTH
    assert lines[1].startswith("LOST   a stage: check 79: long")
    assert lines[2].startswith("FAIL   a stage: check 78: long")
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


def test_a_line_that_was_cut_off_loses_no_other(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.finding("a stage", "first", FINE, 1.0)
    with (tmp_path / "checks.jsonl").open("a") as file:
        file.write('{"stage": "a stage", "check": "sec\n')
    results.finding("a stage", "third", FINE, 1.0)

    assert [row["check"] for row in results.checks()] == ["first", "third"]


def test_what_goes_on_beside_may_tell_nonsense(tmp_path: Path) -> None:
    for text in ("", "hello", 'Traceback (most recent call last):\n{"driver"'):
        (tmp_path / "nvml.json").write_text(text)
        assert runner.told_in(tmp_path / "nvml.json") is None
    (tmp_path / "nvml.json").write_text('hello\n{"driver": 1}\n')
    assert runner.told_in(tmp_path / "nvml.json") == {"driver": 1}
    assert runner.told_in(tmp_path / "nothing") is None
