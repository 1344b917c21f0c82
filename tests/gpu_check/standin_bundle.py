"""The bundle of `make gpu-bundle` on a simulated GPU, with stand-ins for what only a real one runs:
the CUDA runtime, PyTorch, Triton, CuPy, JAX, numba-cuda and NVIDIA's tools.

The stand-ins have the names that the workloads use. They take memory and launch kernels through the
driver, and compute one number for a whole tensor.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_bundle

from gpumanager.sim.machine import REAL
from gpumanager.units import MIB
from tests.gpu_check.frameworks import FRAMEWORKS, link_pytest
from tests.native.sim_box import SimBox, machine, sim_box

STANDINS = Path(__file__).with_name("standins")
ISOLATED = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--net"]
SLOWNESS = "10"
GPU = machine(1, driver=REAL, context_bytes=400 * MIB)
"""As unkind as real ones are."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """folder: the bundle. python: one with nothing but the standard library. cudart: a stand-in."""

    folder: Path
    python: Path
    cudart: Path


def make_bundle(here: Path) -> Bundle:
    """For this Python's version: others' packages come over the network."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(here / "venv")]
    subprocess.run(command, check=True)
    cudart, linked = here / "libcudart.so.12", here / "libcudart_static.o"
    for target, words in ((cudart, ("-shared", "-ldl")), (linked, ("-c",))):
        source = str(STANDINS / "libcudart.c")
        command = ["gcc", "-D_GNU_SOURCE", "-fPIC", "-o", str(target), source, *words]
        subprocess.run(command, check=True)
    gpu_bundle.make(here / "gpu-bundle", (), test_build=True, runtime=linked)
    link_pytest(here / "pytest")
    return Bundle(here / "gpu-bundle", here / "venv/bin/python", cudart)


@dataclass(frozen=True, slots=True)
class Run:
    """left: processes that still use the GPU."""

    out: Path
    status: int
    printed: list[str]
    checks: list[dict[str, Any]]
    facts: list[dict[str, Any]]
    left: Sequence[object]

    def findings(self, name: str) -> dict[str, dict[str, Any]]:
        return {row.get("about", ""): row for row in self.checks if row["check"] == name}

    def verdicts(self, name: str) -> set[str]:
        return {row["verdict"] for row in self.checks if row["check"] == name}


def run(
    bundle: Bundle,
    out: Path,
    words: Sequence[str],
    *,
    frameworks: bool = False,
    **environment: str,
) -> Run:
    """On a simulated GPU, from a folder that is not the bundle's."""
    with sim_box(GPU) as box:
        return run_in(box, bundle, out, words, frameworks=frameworks, **environment)


def run_in(
    box: SimBox,
    bundle: Bundle,
    out: Path,
    words: Sequence[str],
    *,
    frameworks: bool = False,
    **environment: str,
) -> Run:
    path = ":".join(map(str, (*FRAMEWORKS, bundle.cudart.with_name("pytest"))))
    inherited = box.environment(
        OUT=str(out),
        PYTHON=str(bundle.python),
        GPU_CHECK_SLOWNESS=SLOWNESS,
        BOUND="3600",
        CUDART=str(bundle.cudart),
    )
    inherited = {name: inherited[name] for name in inherited if name != "PYTHONPATH"}
    if frameworks:
        inherited |= {"PYTHONPATH": path, "PATH": f"{STANDINS / 'bin'}:{inherited['PATH']}"}
    finished = subprocess.run(
        [*ISOLATED, "sh", str(bundle.folder / "gpu-check.sh"), *words],
        env=inherited | environment,
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert finished.stdout, finished.stderr
    lines = [(out / name).read_text().splitlines() for name in ("checks.jsonl", "facts.jsonl")]
    checks, facts = ([json.loads(line) for line in rows] for rows in lines)
    left = list(box.gpus.processes())
    return Run(out, finished.returncode, finished.stdout.splitlines(), checks, facts, left)


def copy_of(bundle: Bundle, folder: Path, patches: Mapping[str, tuple[str, str]] = {}) -> Bundle:
    """patches: of a file of the bundle a text that is there once, and what replaces it."""
    shutil.copytree(bundle.folder, folder, copy_function=os.link)
    for name, (old, new) in patches.items():
        file = folder / name
        text = file.read_text()
        assert text.count(old) == 1, (name, old)
        mode = file.stat().st_mode
        file.unlink()  # a link to the bundle's own
        file.write_text(text.replace(old, new))
        file.chmod(mode)
    return Bundle(folder, bundle.python, bundle.cudart)
