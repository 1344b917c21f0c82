"""The container image, looked at without a container engine: what the Dockerfile puts where."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import cache_from_source
from pathlib import Path

import dockerfile
import image
import pytest
from packaging.utils import canonicalize_name

from tests.chart import image_contents
from tests.e2e.node import agent_image
from tests.native.table import elf
from vcuda_shim import SHIM_CUDA, SHIM_NVML
from vcuda_shim.build import MACHINES, SEPARATE, build

ROOT = Path(__file__).parents[2]
DOCKERFILE = dockerfile.FILE.read_text()


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first stage makes, with the shims of this machine alone."""
    destination = tmp_path_factory.mktemp("image")
    try:
        image.furnish(destination, shims=False)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no package index to install from: {error}")
    return destination


def test_the_image_holds_what_is_listed_and_nothing_else_of_ours(furnished: Path) -> None:
    names = image_contents.files(furnished)

    assert image_contents.unlisted(names) == []
    assert image_contents.unmet(names) == []


def test_nothing_is_in_it_that_nobody_runs(furnished: Path) -> None:
    assert image_contents.of_no_use(image_contents.files(furnished)) == []


def test_the_image_for_a_real_node_has_the_same_files_and_packages(furnished: Path) -> None:
    def without_what_installing_writes(names: Iterable[str]) -> set[str]:
        written = re.compile(r"\.pyc$|\.dist-info/|^bin/|/lib/shim-")
        return {name for name in names if not written.search(name)}

    site = furnished / image.SITE
    names = [one.removeprefix(f"{image.SITE}/") for one in image_contents.files(furnished)[:-1]]
    of_us = re.compile(r"gpumanager/|vcuda_shim/")

    made = without_what_installing_writes(agent_image.packaged())
    ours = without_what_installing_writes(names)
    assert {one for one in made if of_us.match(one)} == {one for one in ours if of_us.match(one)}
    assert {canonicalize_name(one.name) for one in agent_image.needed()} == {
        canonicalize_name(one.name.split("-")[0]) for one in site.glob("*.dist-info")
    } - {"gpu-manager"}


def test_every_module_is_compiled(furnished: Path) -> None:
    site = furnished / image.SITE
    modules = [path for path in site.rglob("*.py") if path.stat().st_size]

    assert len(modules) > 500
    assert [one for one in modules if not Path(cache_from_source(str(one))).is_file()] == []


@pytest.mark.parametrize("command", ["agent", "extender", "webhook", "doctor", "explain"])
def test_a_command_starts_with_what_is_in_it_alone(furnished: Path, command: str) -> None:
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    environment = {
        "PYTHONPATH": str(furnished / image.SITE),
        "PATH": f"{python.parent}:/usr/bin:/bin",
    }

    done = subprocess.run(
        [str(furnished / image.LAUNCHER), command, "--help"],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: gpumanager {command}")


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
