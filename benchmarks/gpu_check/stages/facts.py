"""Facts of the driver and the GPU, without the shim: the program gpu_facts, alone and together.

What it prints goes to facts.jsonl, each line with what it was run for, also where the program fails
later on. A check names the facts that it is there for: it is lost without one of them, and fails on
a value that cannot be: bars are few and wide, and none says how fast a GPU has to be. A call that
the driver refuses is told with its error.

In order of weight: first what says how processes take turns, and NVML's samples last.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import Bench, patience, patient, program, tool
from gpu_check.conductor import Check
from gpu_check.machine import visible
from gpu_check.outcome import Absent, CheckFailed, Finding, Lost, Verdict
from gpu_check.process import lines_of
from gpu_check.timeslices import Timeline, percentiles, sharing

Row = Mapping[str, Any]
Load = tuple[float, float, float]
"""Milliseconds of a kernel, percent of the time, seconds."""

SLICES: Final = "slices"
TOGETHER_NS: Final = 50_000_000
"""For so long both kernels of `slices` must be there, for their timelines to say much."""

PING: Final = "empty kernel, launch to done"
READY: Final = "ready"
LOAD: Final = "load"
SAMPLES: Final = "utilisation"

SLICES_SECONDS: Final = 2.0
PING_SECONDS: Final = 1.0
LOADED_SECONDS: Final = 5.0
"""Of a load beside which another program starts and pings."""

TWO_SECONDS: Final = 7.0
ONE_SECONDS: Final = 4.0
"""Of looking at NVML's samples beside so many loads."""

READY_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.02
MICROSECONDS: Final = 1_000_000

PAIRS: Final = {"kernel of 500 us": (250.0, 1000.0), "kernel of 50 us": (25.0, 150.0)}
"""Microseconds between a pair of events around a kernel of that calibrated length."""

ANSWERS: Final = {0, 3, 6}
"""Of NVML, where it has no samples: success, not supported, not found."""


@dataclass(frozen=True, slots=True)
class Group:
    """Facts that are told in one line. facts: their names, each by what the line calls it. parts:
    of a spread; the first is shown as the value, the others in brackets.
    """

    about: str
    said: str
    facts: Mapping[str, str]
    parts: Sequence[str] = ("p50",)


def _events(state: str) -> Group:
    around = {f"{length} us": f"kernel of {length} us" for length in (5, 50, 500)}
    around = {"nothing": "nothing", **around, "empty kernel": "empty kernel"}
    names = {short: f"event pair, {what}, {state} stream" for short, what in around.items()}
    said = "us between a pair (p10-p99)"
    return Group(f"events, {state} stream", said, names, ("p50", "p10", "p99"))


def _calls(state: str) -> Group:
    calls = {
        "launch": "cuLaunchKernel, empty",
        "event": "cuEventRecord, timing",
        "event without timing": "cuEventRecord, no timing",
        "value": "cuStreamWriteValue32",
        "host function": "cuLaunchHostFunc",
        "cuStreamQuery": "cuStreamQuery",
    }
    names = {called: f"{call}, {state} stream" for called, call in calls.items()}
    return Group(f"calls, {state} stream", "us of the launching thread", names)


def _seen(where: str) -> Group:
    names = {marker: f"{marker} seen, {where}" for marker in ("value", "event", "host function")}
    return Group(f"markers, {where}", "us until the host knows (p90)", names, ("p50", "p90"))


TIMES: Final = (
    _events("idle"),
    _events("busy"),
    _calls("idle"),
    _calls("busy"),
    Group(
        "other calls",
        "us",
        {
            name: name
            for name in (
                "cuEventQuery, done",
                "cuEventQuery, not ready",
                "cuEventElapsedTime",
                "cuStreamIsCapturing",
                "cuThreadExchangeStreamCaptureMode",
                "cuCtxGetCurrent",
                "cuCtxGetId",
            )
        },
    ),
    _seen("idle"),
    _seen("behind 50 us"),
    Group(
        "price of markers",
        "us of the GPU for a kernel of 5 us in a queue",
        {
            "alone": "5 us kernels in a queue, no marker",
            "with an event behind each": "5 us kernels in a queue, event",
            "with a value": "5 us kernels in a queue, value",
        },
    ),
    Group("queue", "launches", {"queued": "launches queued before the host waits"}, ("value",)),
    Group(
        "NVML's calls",
        "us (p99)",
        {
            "utilisation by process": "nvmlDeviceGetProcessUtilization",
            "processes": "nvmlDeviceGetComputeRunningProcesses_v3",
            "utilisation": "nvmlDeviceGetUtilizationRates",
            "memory": "nvmlDeviceGetMemoryInfo",
            "clock": "nvmlDeviceGetClockInfo",
        },
        ("p50", "p99"),
    ),
)
BESIDE: Final[Mapping[str, Sequence[Load]]] = {
    "alone": [],
    "beside an idle process": [(2, 0, LOADED_SECONDS)],
    "beside a full one": [(2, 100, LOADED_SECONDS)],
}
HAND_OVER: Final = Group(
    "",
    "us from the launch of an empty kernel until the host knows its end (p90)",
    {what: what for what in BESIDE},
    ("p50", "p90"),
)
COPY: Final = "16 MiB copied to the GPU"
COPIES: Final = Group(
    "",
    "us for 16 MiB from pinned memory to the GPU (p90)",
    {what: what for what in BESIDE},
    ("p50", "p90"),
)
CAPTURES: Final = {
    thread: f"capture, query of a {thread} thread" for thread in ("plain", "relaxed")
}
ACTIVE, INVALIDATED = 1, 2
"""CU_STREAM_CAPTURE_STATUS_ACTIVE, _INVALIDATED."""

STARTS: Final = Group(
    "starts",
    "ms",
    {"context": "context made in", "PTX compiled and loaded": "PTX compiled and loaded in"},
    ("value",),
)
MEMORY: Final = {
    step: f"memory, {step}"
    for step in (
        "context",
        "module",
        "first launch",
        "8 streams used",
        "256 MiB managed, touched by the GPU",
        "256 MiB pinned host memory",
        "pool",
        "pool trimmed",
        "a launch after that",
    )
}
OF_ITSELF: Final = ("module", "first launch", "8 streams used", "a launch after that")
"""Steps for which the driver takes memory of its own, if it does for anything."""

SIZES: Final = {size: f"cuMemAlloc, {size} B" for size in (512, 1048576, 1048577, 1572864, 2097153)}


@dataclass(frozen=True, slots=True)
class Printed:
    """What gpu_facts printed. trouble: why it did not end well; None if it did."""

    rows: Sequence[Row]
    trouble: CheckFailed | Lost | None = None

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row["fact"] == name)

    def need(self, names: Iterable[str]) -> None:
        """Raises Lost where one was not printed or all were refused, and CheckFailed where one is
        impossible."""
        names = tuple(names)
        there = {row["fact"] for row in self.rows}
        if missing := [name for name in names if name not in there]:
            why = "" if self.trouble is None else f" ({self.trouble})"
            raise Lost(f"gpu_facts did not print: {'; '.join(missing)}{why}")
        if all(map(self.refused, names)):
            raise Lost("; ".join(map(self.shown, names)))
        if wrong := [text for name in names if (text := impossible(self[name])) is not None]:
            raise CheckFailed(f"cannot be: {'; '.join(wrong)}")

    def need_end(self) -> None:
        """Raises its trouble: all that was needed may have been printed before that."""
        if self.trouble is not None:
            raise self.trouble

    def refused(self, name: str) -> bool:
        return "result" in self[name]

    def shown(self, name: str, parts: Sequence[str] = ("p50",)) -> str:
        if self.refused(name):
            return f"{name} answers {self[name]['result']}"
        first, *others = (f"{float(f'{self[name][part]:.4g}'):g}" for part in parts)
        return f"{first} ({'-'.join(others)})" if others else first


def impossible(row: Row) -> str | None:
    """What it says that cannot be: no measurement, less than nothing, no time for a call, or of a
    pair of events what the kernel between them cannot have taken."""
    name, said = row["fact"], row.get("p50", row.get("value"))
    if "result" in row or not {"n", "value"} & row.keys():
        return None
    if said is None or row.get("min", 0) < 0:
        return f"{name}, {row.get('min', 'not')} measured"
    for kernel, (least, most) in PAIRS.items():
        if kernel in name and not least <= said <= patient(most):
            return f"{name}, {said:g} us: the calibration or the events are wrong"
    return f"{name}, {said:g}" if said <= 0 and not name.startswith("event pair") else None


def measured(printed: Printed, group: Group) -> Finding:
    names = group.facts
    try:
        printed.need(names.values())
    except (Lost, CheckFailed) as error:
        verdict = Verdict.LOST if isinstance(error, Lost) else Verdict.FAIL
        return Finding(verdict, str(error), about=group.about)
    texts = [f"{what} {printed.shown(name, group.parts)}" for what, name in names.items()]
    figures = {
        name: {part: printed[name].get(part) for part in group.parts} for name in names.values()
    }
    return Finding(Verdict.FIGURE, f"{group.said}: {', '.join(texts)}", figures, group.about)


async def facts(
    bench: Bench, what: str, seconds: float, *words: object, prefix: Sequence[str] = ()
) -> Printed:
    """What gpu_facts prints within that time; all of it is written. Raises Lost without it."""
    command = [*prefix, str(program("gpu_facts", bench.work)), *map(str, words)]
    rows: list[Row] = []
    trouble = None
    try:
        await lines_of(command, visible(bench.gpu), output(bench, what), seconds)
    except (CheckFailed, Lost) as failed:
        trouble = failed
    finally:  # also when the check's time is over
        for row in rows_in(output(bench, what)):
            rows.append(row)
            bench.results.fact(**{**row, "of": what})
    return Printed(rows, trouble)


def output(bench: Bench, what: str) -> Path:
    return bench.log(what.replace(" ", "-"))


def rows_in(path: Path) -> Iterator[Row]:
    """All but a line that is not whole."""
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        if line.startswith("{") and line.endswith("}"):
            yield json.loads(line)


async def beside(
    bench: Bench, what: str, loads: Sequence[Load], *words: object
) -> tuple[Printed, list[Printed]]:
    """What gpu_facts prints beside loads that have begun, and what these print. Raises Lost where
    one of them printed nothing of its work, and CheckFailed where it did none."""
    program("gpu_facts", bench.work)
    names = [f"{what} {LOAD} {number}" for number in range(len(loads))]
    latest = time.monotonic() + patient(READY_SECONDS)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(facts(bench, name, READY_SECONDS + load[-1] + 2, LOAD, *load))
            for name, load in zip(names, loads, strict=True)
        ]
        while time.monotonic() < latest and not all(  # noqa: ASYNC110 - nobody tells
            task.done() or any(row["fact"] == READY for row in rows_in(output(bench, name)))
            for name, task in zip(names, tasks, strict=True)
        ):
            await asyncio.sleep(LOOK_SECONDS)
        printed = await facts(bench, what, 15, *words)
    ended = [task.result() for task in tasks]
    for load in ended:
        load.need([READY, LOAD])
        if load.refused(LOAD) or load[LOAD]["kernels"] == 0:
            raise CheckFailed(f"a load got no kernel done: {load[LOAD]}")
        if not is_full(load[LOAD], len(loads)):
            raise CheckFailed(f"a load of 100 % did not keep the GPU busy: {load[LOAD]}")
        load.need_end()
    return printed, ended


def is_full(load: Row, loads: int) -> bool:
    """Of 100 %: were its kernels there for half of its part of the time, and not for twice the
    time? One that was calibrated beside another load has kernels of half the length."""
    work, took = load["kernels"] * load["ms"], (load["ended_us"] - load["begun_us"]) / 1000
    return bool(load["percent"] < 100 or took / loads / 2 / patience() <= work <= took * 2)


async def slices(bench: Bench) -> AsyncIterator[Finding]:
    """Two processes: how long each has the GPU, and how long neither or both of them."""
    runs = [facts(bench, f"slices {number}", 10, SLICES, SLICES_SECONDS) for number in (1, 2)]
    both = await asyncio.gather(*runs)
    for printed in both:
        printed.need([SLICES])
    yield shared(*(timeline(printed[SLICES]) for printed in both))
    for printed in both:
        printed.need_end()


def timeline(row: Row) -> Timeline:
    return Timeline(row["begin"], row["end"], tuple((begin, end) for begin, end in row["away"]))


def shared(one: Timeline, other: Timeline) -> Finding:
    """Raises Lost and CheckFailed."""
    if one.impossible or other.impossible:
        raise CheckFailed("a kernel wrote no times, or times that go back")
    seen = sharing(one, other)
    window, overlap = seen.window / 1e6, seen.overlap / 1e6
    if seen.window < TOGETHER_NS:
        raise Lost(
            f"both kernels were on the GPU for {window:.1f} ms only: one came late, or it had to "
            "wait for the other's end"
        )
    length = percentiles([ns / 1e6 for ns in seen.slices])
    switch = percentiles([ns / 1e3 for ns in seen.switches])
    if length.get("p50") == 0:
        raise Lost("the GPU's clock stands still for longer than what was noted as a pause")
    parts = ["no whole slice", "no switch", "two processes never ran at the same time"]
    if length:
        parts[0] = "{p50:.3f} ms at a time (p10 {p10:.3f}, p90 {p90:.3f})".format(**length)
    if switch:
        parts[1] = "a switch takes {p50:.1f} us (p90 {p90:.1f})".format(**switch)
    if overlap:
        parts[2] = f"overlapped {overlap:.1f} ms, {overlap / window:.1%} of the time"
    figures = {
        "window_ms": window,
        "overlap_ms": overlap,
        "slices": len(seen.slices),
        "slice_ms": length,
        "switch_us": switch,
    }
    return Finding(Verdict.FIGURE, f"in {window:.0f} ms: {'; '.join(parts)}", figures)


async def times(bench: Bench) -> AsyncIterator[Finding]:
    printed = await facts(bench, "times", 20, "times")
    for group in TIMES:
        yield measured(printed, group)
    printed.need_end()


async def hand_over(bench: Bench) -> AsyncIterator[Finding]:
    """How soon a process gets the GPU that another one has, or could have."""
    yield await repeated(bench, "ping", PING, HAND_OVER)


async def copies(bench: Bench) -> AsyncIterator[Finding]:
    """Does a copy wait for its process's turn, though it needs no multiprocessor?"""
    yield await repeated(bench, "copies", COPY, COPIES)


async def repeated(bench: Bench, mode: str, spread: str, group: Group) -> Finding:
    """What one program does again and again: alone, and beside each load."""
    rows: list[Row] = []
    for what, loads in BESIDE.items():
        printed, running = await beside(bench, f"{mode} {what}", loads, mode, PING_SECONDS)
        printed.need([mode, spread])
        printed.need_end()
        for load in running:
            if not covers(load[LOAD], printed[mode]):
                raise Lost(f"{what}: the load did not run all the time")
        rows.append({**printed[spread], "fact": what})
    return measured(Printed(rows), group)


def covers(load: Row, ping: Row) -> bool:
    return bool(load["begun_us"] <= ping["begun_us"] and ping["ended_us"] <= load["ended_us"])


async def captures(bench: Bench) -> AsyncIterator[Finding]:
    """Does a query in another thread break a capture of the global mode?"""
    printed = await facts(bench, "captures", 5, "captures")
    printed.need(CAPTURES.values())
    texts = []
    for thread, name in CAPTURES.items():
        row = printed[name]
        status, end, query = row["status"], row["end"], row["query"]
        if not printed.refused(name) and (status, end == 0) not in {
            (ACTIVE, True),
            (INVALIDATED, False),
        }:
            raise CheckFailed(f"cannot be: {name}: status {status}, its end answers {end}")
        kept = "goes on" if status == ACTIVE else f"is broken (its end answers {end})"
        texts.append(
            f"{printed.shown(name)}"
            if printed.refused(name)
            else f"of a {thread} thread answers {query}, and the capture {kept}"
        )
    figures = {thread: dict(printed[name]) for thread, name in CAPTURES.items()}
    yield Finding(Verdict.FIGURE, f"cuEventQuery {'; '.join(texts)}", figures)
    printed.need_end()


async def memory(bench: Bench) -> AsyncIterator[Finding]:
    """What a context, a module, a launch and allocations take, by NVML's figure of the process, or
    by what the GPU has in use where NVML does not name it."""
    printed = await facts(bench, "memory", 12, "memory")
    yield measured(printed, STARTS)
    printed.need([*MEMORY.values(), *SIZES.values()])
    of = "process" if printed[MEMORY["first launch"]]["process_mib"] > 0 else "gpu"
    taken = {step: printed[name][f"{of}_more_mib"] for step, name in MEMORY.items()}
    if not any(taken.values()):
        raise CheckFailed(f"NVML's figure of the {of} never moved")
    if taken["context"] <= 0 and any(taken[step] for step in OF_ITSELF):
        raise CheckFailed(f"a context takes {taken['context']:g} MiB by NVML's figure of the {of}")
    texts = ", ".join(f"{step} {mib:.4g}" for step, mib in taken.items())
    yield Finding(Verdict.FIGURE, f"MiB more by NVML of the {of}: {texts}", taken, "steps")
    sizes = {str(size): round(printed[name]["each_free"]) for size, name in SIZES.items()}
    for size, name in SIZES.items():
        # One of at most 1 MiB may lie in a slab that the driver has already.
        if 1 << 20 < size > sizes[str(size)] and not printed.refused(name):
            raise CheckFailed(f"{name}: took {sizes[str(size)]} B of the free memory")
    texts = ", ".join(f"{size} takes {bytes_}" for size, bytes_ in sizes.items())
    yield Finding(Verdict.FIGURE, f"bytes of cuMemAlloc: {texts}", sizes, "allocations")
    printed.need_end()


async def two_loads(bench: Bench) -> AsyncIterator[Finding]:
    yield await watched(bench, "two at 100", [(2, 100, TWO_SECONDS + 1)] * 2, TWO_SECONDS)


async def one_load(bench: Bench) -> AsyncIterator[Finding]:
    yield await watched(bench, "one at 30", [(2, 30, ONE_SECONDS + 1)], ONE_SECONDS)


async def watched(bench: Bench, what: str, loads: Sequence[Load], seconds: float) -> Finding:
    """Raw rows of NVML's utilisation beside loads."""
    watch, running = await beside(bench, f"{what} watch", loads, "watch", seconds)
    watch.need([SAMPLES])
    watch.need_end()
    looks = [row for row in watch.rows if row["fact"] == SAMPLES]
    return samples(looks, {load[LOAD]["pid"] for load in running})


def samples(looks: Sequence[Row], ours: set[int]) -> Finding:
    """Whom NVML's samples name, and how far apart they are. Raises CheckFailed, Lost."""
    told = {(pid, stamp) for look in looks for pid, stamp, _ in look["rows"] if stamp > 0}
    answers = sorted({look["answer"] for look in looks})
    if not told and ANSWERS.isdisjoint(answers):
        raise Lost(f"NVML was asked for samples of processes and only answered {answers}")
    if not told:
        said = f"NVML has no samples of processes: answers {answers}"
        return Finding(Verdict.FIGURE, said, {"answers": answers})
    first, last = looks[0]["at"], looks[-1]["at"] + MICROSECONDS
    seen = {(pid, stamp) for pid, stamp in told if first <= stamp <= last}
    if not seen:
        raise CheckFailed(f"{len(told)} samples, none of them of the time in which it looked")
    named = {pid for pid, _ in seen}
    names_at = Counter(stamp for _, stamp in seen)
    stamps = sorted(names_at)
    together = sum(count > 1 for count in names_at.values())
    apart = percentiles([(late - early) / 1000 for early, late in pairwise(stamps)])
    period = "{p50:.0f} ms apart (p10 {p10:.0f}, p90 {p90:.0f})".format(**apart) if apart else "one"
    said = (
        f"{len(stamps)} stamps, {period}; {together} of them name more than one process; "
        f"{len(named & ours)} of our {len(ours)} processes are named, {len(named - ours)} others"
    )
    figures = {
        "stamps": len(stamps),
        "apart_ms": apart,
        "shared": together,
        "ours": len(named & ours),
        "others": len(named - ours),
        "answers": answers,
    }
    return Finding(Verdict.FIGURE, said, figures)


async def own_pids(bench: Bench) -> AsyncIterator[Finding]:
    """Does NVML name processes of a pid namespace by that namespace's numbers?"""
    unshare = [tool("unshare"), "--pid", "--fork", "--mount-proc"]
    try:
        await lines_of([*unshare, "true"], visible(bench.gpu), bench.log("unshare"), 5)
    except CheckFailed as failed:
        raise Absent(f"no pid namespace can be made here: {failed}") from failed
    printed = await facts(bench, "own pid namespace", 10, LOAD, 2, 100, 0.2, prefix=unshare)
    printed.need([READY, LOAD])
    printed.need_end()
    named = printed[READY]["process_mib"] > 0
    said = f"in a pid namespace of its own NVML {'names' if named else 'does not name'} a process"
    yield Finding(Verdict.FIGURE, said, {"named": named})


CHECKS: Final = (
    Check("time slices of two processes", 12, slices),
    Check("times", 22, times),
    Check("hand-over", 30, hand_over),
    Check("captures", 7, captures),
    Check("copies", 30, copies),
    Check("memory", 14, memory),
    Check("utilisation of two at 100 %", 20, two_loads),
    Check("utilisation of one at 30 %", 15, one_load),
    Check("pid namespace", 12, own_pids),
)
