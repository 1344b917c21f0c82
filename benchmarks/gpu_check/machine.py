"""What this machine has for the check; what is missing is told all at once, in one line.

The driver is what this machine's dynamic linker opens, wherever that lies: asked of a process of
its own, since a driver's library is never let go again.
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import WORKLOADS
from gpu_check.outcome import CheckFailed, Lost
from gpu_check.process import lines_of, told
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import Bytes
from gpumanager.volume.driver import version

LOOK_SECONDS: Final = 20.0
"""For one program, none of which imports a framework."""

MODULES: Final = ("torch", "triton", "cupy", "jax", "numba_cuda", "pytest")

_LIBRARIES: Final = """
import ctypes, os, re, sys
for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
    try:
        ctypes.CDLL(name)
    except OSError as error:
        print("missing", name, error)
for line in open("/proc/self/maps"):
    found = re.search(r"(/.*/(libcuda|libnvidia-ml)\\.so\\S*)$", line)
    if found:
        print("found", found[1])
"""

_MODULES: Final = """
import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name):
        print("found", name)
"""


class Missing(Lost):
    """This machine cannot be checked; names all that is missing, and what to do."""

    def __init__(self, pieces: list[str]) -> None:
        super().__init__(f"cannot run here: {'; '.join(pieces)}")
        self.pieces = pieces


@dataclass(frozen=True, slots=True)
class Machine:
    """cuda, ml: the driver's own files. gpu: the one that is used; memory: all of it.

    python: runs the workloads. modules: what it can import of those that have a check.
    """

    cuda: Path
    ml: Path
    gpu: GpuUUID
    memory: Bytes
    python: Path
    modules: frozenset[str]

    @property
    def version(self) -> str:
        """The driver's, as its file says; one that says nothing is called so."""
        return version(self.cuda) or "unknown"


async def look(python: Path, gpu: str | None, work: Path) -> Machine:
    """Raises Missing."""
    missing: list[str] = []
    found = await libraries(work, missing)
    modules = await _modules(python, work, missing)
    if missing:
        raise Missing(missing)
    device = await _device(python, gpu, work)
    return Machine(
        cuda=found["libcuda"],
        ml=found["libnvidia-ml"],
        gpu=GpuUUID(device["uuid"]),
        memory=Bytes(device["total"]),
        python=python,
        modules=modules,
    )


def visible(gpu: str | None) -> dict[str, str]:
    """This environment, in which a program sees that GPU alone."""
    chosen = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
    return {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **chosen}


async def libraries(work: Path, missing: list[str]) -> dict[str, Path]:
    """The driver's files; what is not there is added to `missing`."""
    command = [sys.executable, "-c", _LIBRARIES]
    lines = await lines_of(command, os.environ, work / "libraries.log", LOOK_SECONDS)
    absent = [line.split()[1] for line in lines if line.startswith("missing ")]
    if absent:
        missing.append(
            f"no NVIDIA driver ({' and '.join(absent)} not found by the dynamic linker; install "
            "the driver, or name its folder in LD_LIBRARY_PATH)"
        )
    paths = [Path(line.split(maxsplit=1)[1]) for line in lines if line.startswith("found ")]
    return {re.split(r"\.so", path.name)[0]: path for path in paths}


async def _modules(python: Path, work: Path, missing: list[str]) -> frozenset[str]:
    """Adds a line to `missing` where this is no Python."""
    command: list[str | Path] = [python, "-c", _MODULES, *MODULES]
    try:
        lines = await lines_of(command, os.environ, work / "modules.log", LOOK_SECONDS)
    except (CheckFailed, Lost, OSError) as error:
        missing.append(f"no usable Python {str(python)!r} ({error})")
        return frozenset()
    return frozenset(line.split()[1] for line in lines if line.startswith("found "))


async def _device(python: Path, gpu: str | None, work: Path) -> dict[str, Any]:
    command = [python, WORKLOADS / "device.py"]
    try:
        seen = await told(command, visible(gpu), work / "device.log", LOOK_SECONDS)
    except (CheckFailed, Lost) as failed:
        raise Missing([f"no usable GPU ({failed})"]) from failed
    if "error" in seen:
        raise Missing([f"no usable GPU ({seen['error']}; does nvidia-smi list one?)"])
    return seen
