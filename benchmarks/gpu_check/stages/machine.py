"""Facts of the machine: what runs here, and which driver. No CUDA, no shim, some seconds."""

import asyncio
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import ROOT, Bench
from gpu_check.conductor import Check
from gpu_check.exports import Exports, read_exports
from gpu_check.machine import libraries
from gpu_check.outcome import CheckFailed, Finding, Verdict
from gpu_check.process import lines_of

PROC: Final = tuple(
    map(
        Path,
        (
            "/proc/driver/nvidia/version",
            "/proc/driver/nvidia/params",
            "/proc/cpuinfo",
            "/etc/os-release",
        ),
    )
)
STATUS: Final = Path("/proc/self/status")
FIELDS: Final = (
    "name,driver_version,memory.total,memory.reserved,memory.used,mig.mode.current,"
    "persistence_mode,compute_mode,clocks.sm,clocks.max.sm,clocks.mem,pstate,power.limit,"
    "clocks_event_reasons.active"
)
PACKAGES: Final = ("torch", "triton", "cupy-cuda13x", "cuda-bindings", "nvidia-ml-py", "numpy")
KNOWN: Final = ROOT / "known-functions.json"
"""In a bundle: all functions of the driver's libraries that native/table places."""

SMI_SECONDS: Final = 10.0
RECORDED_WIDTH: Final = 2000
"""Characters of a file of /proc that are kept as a fact."""


async def system(bench: Bench) -> AsyncIterator[Finding]:
    uname = " ".join(platform.uname())
    bench.results.fact("uname", text=uname)
    for path in PROC:
        bench.results.fact("file", path=str(path), text=_text(path))
    figures = {
        "uid": os.getuid(),
        "pids": [line for line in (_text(STATUS) or "").splitlines() if line.startswith("NSpid")],
        "python": sys.version,
        "packages": {name: _version(name) for name in PACKAGES},
    }
    bench.results.fact("system", **figures)
    yield Finding(Verdict.FIGURE, f"{uname}; python {platform.python_version()}", figures)


def _text(path: Path) -> str | None:
    return path.read_text(errors="replace")[:RECORDED_WIDTH] if path.exists() else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


async def nvidia_smi(bench: Bench) -> AsyncIterator[Finding]:
    """A row of figures; all that it tells goes to the logs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        yield Finding(Verdict.SKIP, "no nvidia-smi")
        return
    for words in (["-q"], ["compute-policy", "-l"], ["topo", "-m"]):
        with suppress(CheckFailed):  # what it lacks on a release, its log says
            await lines_of([program, *words], os.environ, bench.log(f"smi-{words[0]}"), SMI_SECONDS)
    query = [program, f"--query-gpu={FIELDS}", "--format=csv,noheader"]
    for line in await lines_of(query, os.environ, bench.log("smi-query"), SMI_SECONDS):
        parts = (part.strip() for part in line.split(","))
        values = dict(zip(FIELDS.split(","), parts, strict=False))
        bench.results.fact("nvidia-smi", **values)
        yield Finding(Verdict.FIGURE, line, values)


async def driver_libraries(bench: Bench) -> AsyncIterator[Finding]:
    """Exports, as in tests/native/table/recorded, and what the table does not place yet."""
    missing: list[str] = []
    found = await libraries(bench.work, missing)
    if missing:
        raise CheckFailed("; ".join(missing))
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    for name, path in found.items():
        exports = await asyncio.to_thread(read_exports, path.resolve())
        _record(bench.work, path.resolve(), exports)
        yield _library(bench, name, path, exports, known.get(name, []))


def _library(
    bench: Bench, name: str, path: Path, exports: Exports, known: Sequence[str]
) -> Finding:
    prefix = "cu" if name == "libcuda" else "nvml"
    functions = [one for one in exports.symbols if re.match(rf"{prefix}[A-Z]", one)]
    unknown = sorted(set(functions) - set(known)) if known else []
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
    return Finding(Verdict.FIGURE, said, figures, name)


def _record(work: Path, path: Path, exports: Exports) -> None:
    """As tests/native/table/recorded has them; a person copies the file there."""
    name, _, version = path.name.partition(".so.")
    lines = [f"# What the real {name} {version} exports: name, and FUNC or OBJECT."]
    lines += [f"{symbol} {kind}" for symbol, kind in sorted(exports.symbols.items())]
    (work / f"recorded-{name}-{version}.txt").write_text("\n".join(lines) + "\n")


CHECKS: Final = (
    Check("system", 5, system),
    Check("nvidia-smi", 30, nvidia_smi),
    Check("driver libraries", 20, driver_libraries),
)
