"""Run stages one after another, each a process of its own under its own bound, and sum them up.

Needs no package: whatever a stage lacks or breaks is that stage's finding. What stages wrote stands
whether they end well or are ended; their logs go into one archive; the last lines of the output say
what matters, for a reader who sees no more than those.

Stages come in the order of what a GPU can break first. The checks of a stage that need PyTorch are
a part of their own, since its first import may take minutes: it begins at once, beside the parts
that need none, and as soon as it has ended the first of its parts is next.
"""

import contextlib
import ctypes
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gpu_check.bench import PLANNED, Bench, patient
from gpu_check.conductor import Check, conduct
from gpu_check.outcome import Finding, Verdict
from gpu_check.results import CHECKS, FACTS, Results

SECONDS: Final = {
    "entries": (25, 0),
    "runtime": (50, 75),
    "process": (15, 0),
    "memory": (40, 85),
    "shares": (50, 0),
    "facts": (65, 0),
    "programs": (100, 45),
    "overhead": (35, 50),
    "latency": (80, 0),
    "machine": (10, 0),
}
"""The stages in order, and what each may take: without PyTorch, and with it. An H100 with 16 cores
needs two thirds of that, and 6 to 8 s for each start of PyTorch."""

COMMANDS: Final[Mapping[str, tuple[tuple[str, ...], float]]] = {
    "first": (("entries", "runtime", "process"), 240),
    "rest": (("memory", "shares", "facts", "programs", "overhead", "latency", "machine"), 560),
    "all": (tuple(SECONDS), 560),
}
"""What there is to ask for besides single stages: stages, and what they may take together."""

ALONE_SECONDS: Final = 560
IMPORT_SECONDS: Final = 240
"""For the first import of PyTorch, which may take two minutes from a cold disk."""

END_SECONDS: Final = 3
"""The last part of a stage's bound: the stage stops then, before the runner kills it."""

KILL_SECONDS: Final = 3
"""For the kernel to end what is killed."""

LOOK_SECONDS: Final = 0.2
TORCH: Final = "torch.json"
LINES: Final = 60
WIDTH: Final = 190
LONGEST_LOG: Final = 1 << 20
WHOLE, ARCHIVE = "gpu-check.json", "logs.tar.gz"
ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_CHILD_SUBREAPER: Final = 36
FAILED, LOST = 1, 3
"""Exit statuses: something failed; nothing did, but something was not looked at."""

_IMPORT: Final = """
import importlib.util, json, os, sys, time
begun, told = time.monotonic(), {"error": None}
told["found"] = importlib.util.find_spec("torch") is not None
try:
    if told["found"]:
        import torch
        told |= {"torch": torch.__version__, "cuda": torch.version.cuda}
except BaseException as error:
    told["error"] = repr(error)
told["seconds"] = round(time.monotonic() - begun, 1)
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(told, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""

_HOLD: Final = """
import ctypes, json, sys, time
begun, told = time.monotonic(), {}
def text(function, *words):
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode() if function(*words, buffer, 96) == 0 else None
try:
    ml = ctypes.CDLL("libnvidia-ml.so.1")
    told["result"], count = ml.nvmlInit_v2(), ctypes.c_uint()
    told["driver"], told["gpus"] = text(ml.nvmlSystemGetDriverVersion), []
    ml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if ml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
            names = text(ml.nvmlDeviceGetName, handle), text(ml.nvmlDeviceGetUUID, handle)
            told["gpus"].append(names)
except Exception as error:
    told["error"] = repr(error)
told["seconds"] = round(time.monotonic() - begun, 2)
print(json.dumps(told), flush=True)
sys.stdin.read()
"""
"""Without persistence mode, a GPU is initialised again for a program that alone has it open."""


class Ended(Exception):
    """A signal asks this check to end."""


@dataclass(frozen=True, slots=True)
class Options:
    """command: this check's program, which runs one stage when told so. python: runs the
    workloads. out: where the results go. seconds: for all. only: names of checks; none are all.
    """

    command: Path
    stages: Sequence[str]
    python: Path
    gpu: str | None
    out: Path
    seconds: float
    only: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """The checks of a stage that need PyTorch, or those that do not."""

    stage: str
    by_torch: bool
    seconds: float

    @property
    def name(self) -> str:
        return self.stage + (", PyTorch" if self.by_torch else "")


def parts_of(stages: Sequence[str]) -> list[Part]:
    parts = [
        Part(stage, by_torch, seconds)
        for stage in stages
        for by_torch, seconds in zip((False, True), SECONDS[stage], strict=True)
    ]
    return [part for part in parts if part.seconds > 0]


def run(options: Options) -> int:
    """The exit status. Results are written on the way out, whatever ends the run."""
    for number in ENDING:
        signal.signal(number, _end)
    begun, work = time.monotonic(), Path(tempfile.mkdtemp(prefix="gc-", dir="/tmp"))  # for sockets
    options.out.mkdir(parents=True, exist_ok=True)
    keep_earlier(options.out)
    for name in (FACTS, CHECKS):
        (options.out / name).touch()
    results, pending, others = Results(options.out), parts_of(options.stages), set(_children())
    try:
        with _beside(options, work) as importing, contextlib.suppress(Ended):
            _run_parts(options, work, pending, importing, begun + options.seconds)
    finally:
        end_orphans(others)
        for part in pending:
            _lost(results, part, "the run was ended before it", _names(part, options.only))
        for name in set(options.only) - {row["check"] for row in results.checks()}:
            _lost(results, Part("gpu-check", by_torch=False, seconds=0), "no stage has it", [name])
        for name, what in BESIDE.items():
            results.fact(what, **(told_in(work / name) or {"error": "it has not ended well"}))
        seconds = time.monotonic() - begun
        _show(summary(results, options, seconds))
        _write_whole(options, results, seconds)
        _archive(work, options.out / ARCHIVE)
        _clean_up(work)
    return status_of(results.checks())


def _show(lines: Sequence[str]) -> None:
    """Where the terminal has gone (a dropped connection), the files still tell everything."""
    try:
        print("\n".join(lines), flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def keep_earlier(out: Path) -> None:
    """Results of an earlier run that went to this folder."""
    found = [out / name for name in (FACTS, CHECKS, WHOLE, ARCHIVE) if (out / name).exists()]
    if found:
        number = 1 + sum(path.is_dir() for path in out.glob("earlier-*"))
        folder = out / f"earlier-{number}"
        folder.mkdir()
        for path in found:
            path.rename(folder / path.name)


def _clean_up(work: Path) -> None:
    """A stage that was ended leaves the links of its rooms behind."""
    for link in Path("/tmp").glob("gc???"):
        with contextlib.suppress(OSError):
            if link.is_symlink() and link.readlink().is_relative_to(work):
                link.unlink()
    shutil.rmtree(work, ignore_errors=True)


def adopt_orphans() -> None:
    """Programs whose stage has ended become children of this process, which then ends them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(spared: Collection[int]) -> None:
    """All children but these, and in turn theirs; for so long as the kernel may take to do it."""
    latest = time.monotonic() + KILL_SECONDS
    while (orphans := set(_children()) - set(spared)) and time.monotonic() < latest:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)


def _end(_number: int, _frame: FrameType | None) -> None:
    for number in ENDING:  # one is enough: the results are written now
        signal.signal(number, signal.SIG_IGN)
    raise Ended


def told_in(path: Path) -> Any:
    """What a program has told in JSON, in one line of a file; None if nothing that can be read."""
    with contextlib.suppress(OSError, ValueError):
        lines = path.read_text(errors="replace").splitlines()
        told = [line for line in lines if line.startswith(("{", "["))]
        return json.loads(told[-1]) if told else None
    return None


def status_of(checks: Sequence[dict[str, Any]]) -> int:
    verdicts = {row["verdict"] for row in checks}
    if Verdict.FAIL.value in verdicts:
        return FAILED
    return LOST if Verdict.LOST.value in verdicts or not checks else 0


BESIDE: Final = {TORCH: "first import of PyTorch", "nvml.json": "NVML held open"}


@dataclass(frozen=True, slots=True)
class Importing:
    """PyTorch's first import. It makes no context, so that no other program uses the GPU while
    facts are measured. beside: pids of what goes on beside all parts.
    """

    told: Path
    process: subprocess.Popen[bytes]
    beside: frozenset[int]

    def has_ended(self) -> bool:
        """Well or not."""
        if (status := self.process.poll()) is not None and not self.told.exists():
            error = f"its first import ended with status {status}"
            self.told.write_text(json.dumps({"found": True, "error": error}))
        return self.told.exists()


@contextlib.contextmanager
def _beside(options: Options, work: Path) -> Iterator[Importing]:
    """What goes on beside all parts: PyTorch's first import, and an open NVML."""
    torch, nvml = work / TORCH, work / "nvml.json"
    bounded = [
        "timeout",
        "--kill-after=5",
        str(patient(IMPORT_SECONDS)),
        str(options.python),
        "-c",
        _IMPORT,
    ]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(torch.with_suffix(".log").open("wb"))
        importing = subprocess.Popen(
            [*bounded, str(torch)], stdout=log, stderr=log, start_new_session=True
        )
        stack.callback(_stop, importing)
        output = stack.enter_context(nvml.open("wb"))
        holding = [sys.executable, "-c", _HOLD]
        holder = subprocess.Popen(
            holding, stdin=subprocess.PIPE, stdout=output, stderr=log, start_new_session=True
        )
        stack.callback(_stop, holder)
        yield Importing(torch, importing, frozenset(_children()))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """With all that it started; not waited for where the kernel cannot end it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=KILL_SECONDS)


def _run_parts(
    options: Options, work: Path, pending: list[Part], importing: Importing, deadline: float
) -> None:
    """The first one that can be run, again and again; what is begun is taken off the list."""
    results = Results(options.out)
    while pending:
        imported, left = importing.has_ended(), deadline - time.monotonic()
        ready = [part for part in pending if imported or not part.by_torch]
        if left <= 0:
            part = pending.pop(0)
            slow = part.by_torch and not imported
            said = "PyTorch's first import has not ended" if slow else "no time is left for it"
            _lost(results, part, said, _names(part, options.only))
        elif ready:
            pending.remove(ready[0])
            _run_part(options, ready[0], work, min(patient(ready[0].seconds), left))
            end_orphans(importing.beside)
        else:
            time.sleep(LOOK_SECONDS)


def _run_part(options: Options, part: Part, work: Path, seconds: float) -> None:
    """What it planned and did not tell of is lost."""
    folder = work / (f"{part.stage}-t" if part.by_torch else part.stage)
    folder.mkdir()
    words: list[object] = ["--stage", part.stage, "--work", folder, "--torch", work / TORCH]
    words += ["--by-torch"] if part.by_torch else []
    words += ["--python", options.python, "--out", options.out, "--seconds", seconds - END_SECONDS]
    words += [] if options.gpu is None else ["--gpu", options.gpu]
    words += [word for name in options.only for word in ("--check", name)]
    with contextlib.suppress(OSError):  # of a terminal that has gone
        print(f"gpu-check: {part.name}, at most {seconds:.0f} s", file=sys.stderr, flush=True)
    log, ended = folder / "stage.log", "was ended from outside"
    try:
        status = _wait([sys.executable, options.command, *words], log, seconds)
        ended = "did not end" if status is None else f"ended with status {status}"
        ended = ended if status != 0 else ""
    finally:
        last = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        left = told_in(folder / PLANNED)
        if left is None and ended:
            left = _names(part, options.only)  # it had not begun
        if left or ended:
            _lost(Results(options.out), part, f"the stage {ended}: {last}", left or ["stage"])


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


def _lost(results: Results, part: Part, said: str, checks: Sequence[str]) -> None:
    for check in checks:
        results.finding(part.name, check, Finding(Verdict.LOST, said), 0.0)


def _checks(part: Part, only: Sequence[str]) -> list[Check]:
    module = importlib.import_module(f"gpu_check.stages.{part.stage}")
    checks = [check for check in module.CHECKS if check.by_torch == part.by_torch]
    return [check for check in checks if not only or check.name in only]


def _names(part: Part, only: Sequence[str]) -> list[str]:
    """Of its checks; of a stage that cannot be imported there is but one to tell."""
    try:
        return [check.name for check in _checks(part, only)]
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it was not looked at
        return ["stage"]


async def run_stage(part: Part, bench: Bench, only: Sequence[str]) -> None:
    """In the process of a part."""
    async with bench:
        await conduct(bench, part.stage, _checks(part, only))


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
    status = status_of(results.checks())
    whole = {
        "stages": list(options.stages),
        "seconds": round(seconds, 1),
        "passed": status == 0,
        "exit_status": status,
        "facts": results.facts(),
        "checks": results.checks(),
    }
    (options.out / WHOLE).write_text(json.dumps(whole, indent=1) + "\n")


def summary(results: Results, options: Options, seconds: float) -> list[str]:
    """At most so many lines: what was lost first, what failed next."""
    checks, order = results.checks(), [verdict.value for verdict in Verdict]
    counts = {verdict: sum(row["verdict"] == verdict for row in checks) for verdict in order}
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    facts = results.facts()
    torch = not any(row.get("found") is False for row in facts if row["fact"] == BESIDE[TORCH])
    counted += "" if torch else "; no PyTorch here"
    head = [f"gpu-check: {seconds:.0f} s; {counted}; {len(facts)} facts; {options.out}"]
    ranked = sorted(checks, key=lambda row: order.index(row["verdict"]))
    lines = [_line(row) for row in ranked]
    if len(lines) > LINES - len(head):
        left_out = len(lines) - (LINES - len(head)) + 1
        lines = [*lines[: len(lines) - left_out], f"… and {left_out} more in {CHECKS}"]
    return head + lines


def _line(row: dict[str, Any]) -> str:
    about = ": ".join(filter(None, (row["stage"], row["check"], row.get("about"))))
    line = f"{row['verdict']:6} {about}: {' '.join(row['said'].split())}"
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
