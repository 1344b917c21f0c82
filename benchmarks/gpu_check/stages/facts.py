"""Facts of the driver and the GPU, without the shim: the program gpu_facts, alone and together.

What it prints goes to facts.jsonl, each line with what it was run for; here only what decides
something is told.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from gpu_check.bench import Bench, program
from gpu_check.conductor import Check
from gpu_check.machine import visible
from gpu_check.outcome import CheckFailed, Finding, Verdict
from gpu_check.process import lines_of

Rows = list[dict[str, Any]]

TOLD: Final = (
    "event pair, nothing between, idle stream",
    "event pair, nothing between, busy stream",
    "cuLaunchKernel, empty, queued",
    "cuEventRecord, timing",
    "nvmlDeviceGetProcessUtilization",
)


async def facts(bench: Bench, what: str, *words: str, seconds: float = 40.0) -> Rows:
    """What gpu_facts says; also written."""
    command: list[str | Path] = [program("gpu_facts"), *words]
    lines = await lines_of(command, visible(bench.gpu), bench.log(what.replace(" ", "-")), seconds)
    rows: Rows = [json.loads(line) for line in lines if line.startswith("{")]
    for row in rows:
        bench.results.fact(**{**row, "of": what})
    return rows


async def alone(bench: Bench) -> AsyncIterator[Finding]:
    rows = await facts(bench, "alone", "alone")
    by_name = {row["fact"]: row for row in rows}
    memory = {row["after"]: row["process_more_mib"] for row in rows if row["fact"] == "memory"}
    yield Finding(
        Verdict.FIGURE,
        f"context {memory.get('context')} MiB, module {memory.get('module')}, first launch "
        f"{memory.get('first launch')}, 256 MiB managed and touched "
        f"{memory.get('256 MiB managed, touched by the GPU')} MiB in NVML's process figure",
        memory,
        "memory",
    )
    sizes = {row["bytes"]: row["each_process"] for row in rows if row["fact"] == "cuMemAlloc"}
    odd = {size: sizes.get(size) for size in (1048576, 1048577, 1572864, 2097153)}
    yield Finding(Verdict.FIGURE, f"bytes of each cuMemAlloc by NVML: {odd}", sizes, "granularity")
    spreads = {name: by_name[name]["p50"] for name in TOLD if name in by_name}
    said = "; ".join(f"{name} {value:.2f} us" for name, value in spreads.items())
    yield Finding(Verdict.FIGURE, said, spreads, "times")
    queue = by_name.get("launches queued before the host waits", {}).get("value")
    yield Finding(Verdict.FIGURE, f"{queue} launches are queued", {"queue": queue}, "queue")


async def slices(bench: Bench) -> AsyncIterator[Finding]:
    """Two processes: how long each has the GPU, and how long neither of them."""
    told = await asyncio.gather(
        facts(bench, "slices 1", "slices", "1"), facts(bench, "slices 2", "slices", "1")
    )
    away = [
        (end - begin) / 1000
        for rows in told
        for row in rows
        if row["fact"] == "slices"
        for begin, end in row["away"]
    ]
    if not away:
        yield Finding(Verdict.FIGURE, "no kernel was ever stopped", {"away": 0})
        return
    figures = {"away": len(away), "median_us": median(away), "most_us": max(away)}
    yield Finding(
        Verdict.FIGURE,
        f"stopped {len(away)} times, median {median(away):.0f} us, most {max(away):.0f} us",
        figures,
    )


async def watched(
    bench: Bench, what: str, seconds: int, loads: Sequence[tuple[str, str, str]]
) -> Finding:
    """Raw rows of NVML's utilisation beside so many loads."""
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for number, load in enumerate(loads):
            group.create_task(facts(bench, f"{what} load {number}", "load", *load))
        rows = await facts(bench, f"{what} watch", "watch", str(seconds))
    seen = [(pid, stamp, sm) for row in rows for pid, stamp, sm in row["rows"]]
    pids_of: dict[int, set[int]] = {}
    for pid, stamp, _ in seen:
        pids_of.setdefault(stamp, set()).add(pid)
    together = sum(len(pids) > 1 for pids in pids_of.values())
    results = sorted({row["result"] for row in rows})
    figures = {"rows": len(seen), "stamps": len(pids_of), "shared": together, "results": results}
    said = (
        f"{len(seen)} rows of {len({pid for pid, _, _ in seen})} processes, {len(pids_of)} stamps, "
        f"{together} of them with two processes; NVML answers {results}"
    )
    return Finding(Verdict.FIGURE, said, figures)


async def two_loads(bench: Bench) -> AsyncIterator[Finding]:
    yield await watched(bench, "two at 100", 10, [("2", "100", "8")] * 2)


async def one_load(bench: Bench) -> AsyncIterator[Finding]:
    yield await watched(bench, "one at 30", 6, [("2", "30", "5")])


async def own_pids(bench: Bench) -> AsyncIterator[Finding]:
    """Does NVML name processes of a pid namespace by that namespace's numbers?"""
    command: list[str | Path] = ["unshare", "--pid", "--fork", "--mount-proc"]
    command += [program("gpu_facts"), "alone"]
    try:
        lines = await lines_of(command, visible(bench.gpu), bench.log("own-pids"), 20)
    except (CheckFailed, OSError) as failed:
        yield Finding(Verdict.SKIP, f"no pid namespace can be made here: {failed}")
        return
    rows = [json.loads(line) for line in lines if line.startswith('{"fact":"memory"')]
    named = any(row["process_mib"] >= 0 for row in rows)
    bench.results.fact("own pid namespace", named=named)
    said = f"in a pid namespace of its own NVML {'names' if named else 'does not name'} a process"
    yield Finding(Verdict.FIGURE, said, {"named": named})


CHECKS: Final = (
    Check("gpu_facts alone", 40, alone),
    Check("time slices of two processes", 15, slices),
    Check("utilisation of two at 100 %", 20, two_loads),
    Check("utilisation of one at 30 %", 15, one_load),
    Check("pid namespace", 20, own_pids),
)
