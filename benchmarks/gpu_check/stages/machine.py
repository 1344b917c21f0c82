"""Facts of the machine: what runs here. No CUDA, no shim, some seconds; not before what matters."""

import asyncio
import os
import platform
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

from gpu_check.bench import Bench, tool
from gpu_check.conductor import Check
from gpu_check.outcome import CheckFailed, Finding, Lost, Verdict, passed_if
from gpu_check.process import lines_of

PROC: Final = (
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
    "/proc/cpuinfo",
    "/etc/os-release",
)
STATUS: Final = Path("/proc/self/status")
FIELDS: Final = (
    *("name", "driver_version", "memory.total", "memory.reserved", "memory.used"),
    *("mig.mode.current", "persistence_mode", "compute_mode", "clocks.sm", "clocks.max.sm"),
    *("clocks.mem", "pstate", "power.limit", "clocks_event_reasons.active"),
)
PACKAGES: Final = (
    *("torch", "triton", "cupy-cuda13x", "jax", "numba-cuda", "cuda-bindings", "nvidia-ml-py"),
    *("nvidia-cuda-runtime", "numpy"),
)
SMI_SECONDS: Final = 10.0
RECORDED_WIDTH: Final = 2000
"""Characters of a file of /proc that are kept as a fact."""


async def system(bench: Bench) -> AsyncIterator[Finding]:
    uname = " ".join(platform.uname())
    files = {path: _text(Path(path)) for path in PROC}
    for path, text in files.items():
        bench.results.fact("file", path=path, text=text)
    pids = [line for line in (_text(STATUS) or "").splitlines() if line.startswith("NSpid")]
    figures = {
        "uname": uname,
        "uid": os.getuid(),
        "pids": pids,
        "python": sys.version,
        "packages": {name: _version(name) for name in PACKAGES},
    }
    bench.results.fact("system", **figures)
    seen = f"{uname}; python {platform.python_version()}"
    yield passed_if({"/proc tells of this machine": bool(files["/proc/cpuinfo"])}, seen, {})


def _text(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(errors="replace")[:RECORDED_WIDTH]
    return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


async def nvidia_smi(bench: Bench) -> AsyncIterator[Finding]:
    """A row of figures for each GPU; all that it tells goes to the logs."""
    program = tool("nvidia-smi")
    query = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader"]
    rows, *_ = await asyncio.gather(
        lines_of(query, os.environ, bench.log("smi-query"), SMI_SECONDS),
        *(
            _log_only(bench, [program, *words])
            for words in (["-q"], ["compute-policy", "-l"], ["topo", "-m"])
        ),
    )
    for line in rows or [""]:
        values = [part.strip() for part in line.split(",")]
        if len(values) != len(FIELDS):
            raise Lost(f"nvidia-smi answers {len(values)} of {len(FIELDS)} fields: {line!r}")
        figures = dict(zip(FIELDS, values, strict=True))
        bench.results.fact("nvidia-smi", **figures)
        yield Finding(Verdict.FIGURE, line, figures)


async def _log_only(bench: Bench, command: list[str]) -> None:
    with suppress(CheckFailed, Lost):  # what it lacks on a release, its log says
        await lines_of(command, os.environ, bench.log(f"smi-{command[1]}"), SMI_SECONDS)


CHECKS: Final = (
    Check("system", 5, system),
    Check("nvidia-smi", 12, nvidia_smi),
)
