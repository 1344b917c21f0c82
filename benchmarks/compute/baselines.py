"""The usual ways to limit compute, as libraries to put in front of the driver: baselines.c."""

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "native" / "include"
LAWS = {"delta": "LAW_DELTA", "aimd": "LAW_AIMD"}
"""Name of a baseline, and what chooses its control law."""

FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall")


def build(folder: Path) -> dict[str, Path]:
    """One library for each law, named after it."""
    return {name: build_one(folder / f"{name}.so", law) for name, law in LAWS.items()}


def build_one(library: Path, law: str) -> Path:
    source, output = str(HERE / "baselines.c"), ["-o", str(library)]
    command = ["gcc", *FLAGS, f"-I{INCLUDE}", f"-D{law}", *output, source, "-ldl", "-pthread"]
    subprocess.run(command, check=True, timeout=60)
    return library
