"""What the driver exports, and what cuGetProcAddress answers: are its answers the exports, by which
the shim recognises them? And are they exchanged for hooks behind the shim?
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import ROOT, WORKLOADS, Bench
from gpu_check.conductor import Check
from gpu_check.exports import Exports, read_exports
from gpu_check.machine import Missing, libraries, visible
from gpu_check.outcome import Finding, Verdict, passed_if
from gpu_check.process import told

KNOWN: Final = ROOT / "known-functions.json"
"""In a bundle: all functions of the driver's libraries that native/table places, and its hooks."""

VARIANT: Final = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
SECONDS: Final = 15.0
HALF: Final = 50
"""Percent: a whole GPU needs no hooks of its time."""

ANSWERED_PART: Final = 0.9
"""Of the names of all exports; a few cannot be asked for."""

NEEDED: Final = {
    "libcuda": ("cuInit", "cuGetProcAddress", "cuMemAlloc_v2", "cuMemFree_v2", "cuLaunchKernel"),
    "libnvidia-ml": ("nvmlInit_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetHandleByUUID"),
}
"""Without these nothing of the shim can work, so that a file without them was not read right."""


def known() -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(KNOWN.read_text()) if KNOWN.exists() else {"hooks": {}}
    return seen


def families() -> list[str]:
    """Base names of the hooked functions, as cuGetProcAddress is asked for them."""
    return sorted({VARIANT.sub("", name) for name in known()["hooks"]})


async def driver_files(bench: Bench) -> dict[str, Path]:
    missing: list[str] = []
    found = await libraries(bench.work, missing)
    if missing:
        raise Missing(missing)
    return found


async def driver_libraries(bench: Bench) -> AsyncIterator[Finding]:
    """Exports, as in tests/native/table/recorded, and what the table does not place yet."""
    for name, path in (await driver_files(bench)).items():
        exports = await asyncio.to_thread(read_exports, path.resolve())
        _record(bench.work, path.resolve(), exports)
        yield _library(bench, name, path, exports)


def _library(bench: Bench, name: str, path: Path, exports: Exports) -> Finding:
    prefix, placed = ("cu" if name == "libcuda" else "nvml"), set(known().get(name, ()))
    functions = [one for one in exports.symbols if re.match(rf"{prefix}[A-Z]", one)]
    unknown = sorted(set(functions) - placed) if placed else []
    missing = [one for one in NEEDED[name] if one not in exports.symbols]
    figures: dict[str, Any] = {
        "path": str(path),
        "file": path.resolve().name,
        "exports": len(functions),
        "unknown": unknown,
        "nodes": exports.nodes,
        "symbolic": exports.symbolic,
        "own_slots": [one for one in exports.own_slots if one.startswith(prefix)],
    }
    bench.results.fact("library", library=name, **figures)
    said = f"{path.resolve().name}: {len(functions)} functions, {len(unknown)} unknown to the table"
    found = passed_if({f"it exports {', '.join(missing)}": not missing}, said, figures)
    return Finding(found.verdict, found.said, figures, name)


def _record(work: Path, path: Path, exports: Exports) -> None:
    """As tests/native/table/recorded has them; a person copies the file there."""
    name, _, version = path.name.partition(".so.")
    lines = [f"# What the real {name} {version} exports: name, and FUNC or OBJECT."]
    lines += [f"{symbol} {kind}" for symbol, kind in sorted(exports.symbols.items())]
    (work / f"recorded-{name}-{version}.txt").write_text("\n".join(lines) + "\n")


async def _table(bench: Bench, cuda: Path) -> Path:
    """What the workload reads."""
    exports = await asyncio.to_thread(read_exports, cuda)
    path = bench.work / "entries.json"
    path.write_text(json.dumps({"exports": sorted(exports.symbols), "hooks": known()["hooks"]}))
    return path


async def bare(bench: Bench) -> AsyncIterator[Finding]:
    cuda = (await driver_files(bench))["libcuda"].resolve()
    record = bench.work / f"recorded-cuGetProcAddress-{cuda.name.partition('.so.')[2]}.txt"
    command = [bench.python, WORKLOADS / "entries.py", await _table(bench, cuda), record]
    seen = await told(command, visible(bench.gpu), bench.log("bare"), SECONDS)
    bench.results.fact("entry points", **seen)
    said = (
        f"{seen['answered']} of {seen['names']} names are answered, {seen['foreign']} by no export"
    )
    conditions = {
        "each answer is an export": seen["foreign"] == 0,
        "nearly each name is answered": seen["answered"] >= ANSWERED_PART * seen["names"],
    }
    yield passed_if(conditions, said, seen)


async def behind_the_shim(bench: Bench) -> AsyncIterator[Finding]:
    place = await bench.place()
    table = await _table(bench, place.machine.cuda.resolve())
    room = await place.limit(HALF)
    evidence = await place.run(room, "entries.py", SECONDS, str(table))
    yield behind(evidence.told)


def behind(seen: Mapping[str, Any]) -> Finding:
    if not known()["hooks"]:
        return Finding(Verdict.LOST, "the table of hooks is in a bundle only", seen)
    conditions = {
        "the shim is in the program": bool(seen["shim"]),
        f"the shim's hook is the answer for {', '.join(seen['bypassed'])}": not seen["bypassed"],
        "some functions are exchanged for hooks": seen["exchanged"] > 0,
    }
    return passed_if(conditions, f"{seen['exchanged']} functions exchanged for hooks", seen)


CHECKS: Final = (
    Check("driver libraries", 20, driver_libraries),
    Check("entry points of the driver", 20, bare),
    Check("entry points behind the shim", 30, behind_the_shim),
)
