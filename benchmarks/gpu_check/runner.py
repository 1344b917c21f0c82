"""Run stages one after another, each a process of its own under its own bound, and sum them up.

Needs no package: whatever a stage lacks or breaks is that stage's finding. What stages wrote stands
whether they end well or are ended; their logs go into one archive; the last lines of the output say
what matters, for a reader who sees no more than those.
"""

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import Bench, patient
from gpu_check.conductor import conduct
from gpu_check.outcome import Finding, Outcome, Verdict
from gpu_check.results import CHECKS, FACTS, Results

SECONDS: Final = {
    "machine": 15,
    "facts": 65,
    "entries": 20,
    "runtime": 65,
    "memory": 120,
    "shares": 100,
    "overhead": 55,
}
"""The stages in order, and what each may take: together two minutes less than all may."""

WHOLE_SECONDS: Final = 560
IMPORT_SECONDS: Final = 240
"""For the first import of PyTorch, which may take two minutes from a cold disk."""

END_SECONDS: Final = 3
"""Time that a stage has, after its bound, to end by itself."""

TORCH: Final = "torch.json"
LINES: Final = 60
WIDTH: Final = 190
LONGEST_LOG: Final = 1 << 20
WORSE_FIRST: Final = tuple(
    verdict.value for verdict in (Verdict.FAIL, Verdict.FIGURE, Verdict.SKIP, Verdict.PASS)
)

_IMPORT: Final = """
import json, os, sys, time
begun, told = time.monotonic(), {"error": None}
try:
    import torch
    told |= {"torch": torch.__version__, "cuda": torch.version.cuda}
except BaseException as error:
    told["error"] = repr(error)
told["seconds"] = round(time.monotonic() - begun, 1)
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(told, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


@dataclass(frozen=True, slots=True)
class Options:
    """command: this check's program, which runs one stage when told so. python: runs the
    workloads. out: where the results go. seconds: for all.
    """

    command: Path
    stages: Sequence[str]
    python: Path
    gpu: str | None
    out: Path
    seconds: float


def run(options: Options) -> bool:
    """Whether nothing failed."""
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # results are written on the way out
    options.out.mkdir(parents=True, exist_ok=True)
    for name in (FACTS, CHECKS):
        (options.out / name).write_text("")
    results = Results(options.out)
    work = Path(tempfile.mkdtemp(prefix="gc-", dir="/tmp"))  # short, for sockets
    try:
        with first_import(options, work / TORCH):
            for stage in options.stages:
                left = options.seconds - (time.monotonic() - begun)
                _run_stage(options, stage, work, min(patient(SECONDS[stage]), left))
            seen = json.loads((work / TORCH).read_text()) if (work / TORCH).exists() else {}
            results.fact("first import of PyTorch", **(seen or {"error": "it has not ended"}))
    finally:
        seconds = time.monotonic() - begun
        _archive(work, options.out / "logs.tar.gz")
        shutil.rmtree(work, ignore_errors=True)
        _write_whole(options, results, seconds)
        print("\n".join(summary(results, options, seconds)))
    return all(row["verdict"] != "FAIL" for row in results.checks())


@contextlib.contextmanager
def first_import(options: Options, told: Path) -> Iterator[None]:
    """PyTorch's first import, in the background, told of in a file once it has ended.

    It makes no context, so that no other program uses the GPU while the facts are measured.
    """
    output = told.with_suffix(".log").open("wb")
    script = [str(options.python), "-c", _IMPORT, str(told)]
    with output:
        try:
            process = subprocess.Popen(
                ["timeout", str(IMPORT_SECONDS), *script], stdout=output, stderr=output
            )
        except OSError as error:
            told.write_text(json.dumps({"error": str(error)}))
            yield
            return
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _run_stage(options: Options, stage: str, work: Path, seconds: float) -> None:
    """Its own failure is a row of checks.jsonl, as its checks' are."""
    if seconds <= 0:
        _lost(options, stage, Verdict.SKIP, "no time is left for it")
        return
    folder = work / stage
    folder.mkdir()
    words = ["--stage", stage, "--work", folder, "--torch", work / TORCH]
    words += ["--python", options.python, "--out", options.out, "--seconds", seconds]
    words += [] if options.gpu is None else ["--gpu", options.gpu]
    print(f"gpu-check: {stage}, at most {seconds:.0f} s", file=sys.stderr, flush=True)
    log = folder / "stage.log"
    status = _wait([sys.executable, options.command, *words], log, seconds + END_SECONDS)
    if status != 0:
        last = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        said = "did not end" if status is None else f"ended with status {status}"
        _lost(options, stage, Verdict.FAIL, f"the stage {said}: {last}")


def _wait(command: Sequence[object], log: Path, seconds: float) -> int | None:
    """A program's status; None where it was ended, with all that it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)), stdout=output, stderr=output, start_new_session=True
        )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _lost(options: Options, stage: str, verdict: Verdict, said: str) -> None:
    Results(options.out).outcome(stage, Outcome("stage", (Finding(verdict, said),), 0.0))


async def run_stage(stage: str, bench: Bench) -> None:
    """In the process of a stage."""
    module = importlib.import_module(f"gpu_check.stages.{stage}")
    async with bench:
        await conduct(bench, stage, module.CHECKS)


def _archive(work: Path, target: Path) -> None:
    """Logs and records of all stages; of a long log the end."""
    files = [*work.rglob("*.log"), *work.rglob("*.txt")]
    for path in files:
        if path.stat().st_size > LONGEST_LOG:
            path.write_bytes(path.read_bytes()[-LONGEST_LOG:])
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(files):
            archive.add(path, path.relative_to(work))


def _write_whole(options: Options, results: Results, seconds: float) -> None:
    whole = {
        "stages": list(options.stages),
        "seconds": round(seconds, 1),
        "passed": all(row["verdict"] != "FAIL" for row in results.checks()),
        "facts": results.facts(),
        "checks": results.checks(),
    }
    (options.out / "gpu-check.json").write_text(json.dumps(whole, indent=1) + "\n")


def summary(results: Results, options: Options, seconds: float) -> list[str]:
    """At most so many lines, what failed first."""
    checks = results.checks()
    counts = {verdict: sum(row["verdict"] == verdict for row in checks) for verdict in WORSE_FIRST}
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    head = [f"gpu-check: {seconds:.0f} s; {counted}; {len(results.facts())} facts; {options.out}"]
    ranked = sorted(checks, key=lambda row: WORSE_FIRST.index(row["verdict"]))
    lines = [_line(row) for row in ranked]
    if len(lines) > LINES - len(head):
        left_out = len(lines) - (LINES - len(head)) + 1
        lines = [*lines[: len(lines) - left_out], f"… and {left_out} more in {CHECKS}"]
    return head + lines


def _line(row: dict[str, Any]) -> str:
    about = ": ".join(filter(None, (row["stage"], row["check"], row.get("about"))))
    line = f"{row['verdict']:6} {about}: {' '.join(row['said'].split())}"
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
