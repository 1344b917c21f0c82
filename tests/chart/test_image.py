"""The container image, by its Dockerfile, and shims for other machines; `tests/test_install.py` has
what the first stage makes.
"""

import os
import re
from pathlib import Path

import dockerfile
import image
import pytest

from tests.native.table import elf
from vcuda_shim import SHIM_CUDA, SHIM_NVML
from vcuda_shim.build import MACHINES, SEPARATE, build

ROOT = Path(__file__).parents[2]
DOCKERFILE = dockerfile.FILE.read_text()


def test_the_shims_of_both_architectures_are_asked_for() -> None:
    assert [f"shims-{machine}" for machine in MACHINES] == list(SEPARATE)
    assert MACHINES == ("aarch64", "x86_64")


def test_shims_for_x86_64_by_the_cross_compiler_are_those_of_gcc(tmp_path: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("beside the shims of an x86-64 machine")
    build(tmp_path, ["shims-x86_64"])

    for native in (SHIM_CUDA, SHIM_NVML):
        made = tmp_path / "lib" / "shim-x86_64" / native.name
        assert elf.machine(made) == elf.machine(native)
        assert elf.exported(made) == elf.exported(native)
        assert elf.newest_glibc(made) <= (2, 17)


def test_what_the_dockerfile_copies_is_there_and_let_in() -> None:
    let_in = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    lines = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", DOCKERFILE)
    copied = [name for line in lines for name in line.split()]

    assert sorted(copied) == sorted(let_in)
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_dockerfile_copies_all_that_the_build_reads() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text().split()
    wanted = {word for word in manifest if word not in {"graft", "include"}}
    project = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r'(?:readme|license-files) = \[?"([^"]+)"', project))

    copied = {name for line in re.findall(r"(?m)^COPY (.+)$", DOCKERFILE) for name in line.split()}
    assert wanted | named | {"gpumanager", "vcuda_shim", "pyproject.toml"} <= copied


def test_both_stages_have_the_same_python() -> None:
    stages = re.findall(r"(?m)^FROM (.*)$", DOCKERFILE)

    assert stages == ["--platform=$BUILDPLATFORM ${PYTHON} AS built", "${PYTHON}"]
    assert re.search(r"(?m)^ARG PYTHON=python:3\.(1[1-9])-slim-[a-z]+$", DOCKERFILE)


def test_the_cross_compiler_is_the_one_of_the_tests() -> None:
    (pinned,) = re.findall(r'"ziglang==([^"]+)"', (ROOT / "pyproject.toml").read_text())

    assert f"ziglang=={pinned}" in DOCKERFILE


def test_the_image_runs_as_nobody_in_particular_and_starts_the_program() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]

    assert re.search(r"(?m)^USER 65532:65532$", last)
    assert 'ENTRYPOINT ["gpumanager"]' in last
    assert f"PYTHONPATH=/{image.SITE}" in last
    assert Path("/", image.LAUNCHER).parent == Path("/usr/local/bin")


def test_no_driver_is_in_the_image() -> None:
    said = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]

    assert not re.search(r"nvidia|cuda:", "\n".join(said), re.IGNORECASE)
