"""`pip install .` brings all that works without the source tree; `-e .` builds all in it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from gpumanager.sim.container.process import namespaces_available

ROOT = Path(__file__).parent.parent
MISSING = namespaces_available()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(out), str(ROOT)], check=True, timeout=1800)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The wheel's content, unpacked: what pip would put into site-packages."""
    site = wheel.with_name("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        for member in archive.infolist():  # extractall drops modes
            (site / member.filename).chmod(member.external_attr >> 16 or 0o644)
    return site


@pytest.fixture(scope="module")
def venv(wheel: Path) -> Path:
    """A venv into which pip has installed the wheel. Dependencies are those of this Python: a line
    of a .pth file, which brings no editable install along.
    """
    home = wheel.with_name("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "-q"]
    options = ["--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, *options, str(wheel)], check=True, timeout=1800)
    return home


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, with nothing built in them."""
    tree = tmp_path_factory.mktemp("checkout") / "tree"
    built = shutil.ignore_patterns(".*", "lib", "bin", "*.so", "build", "*.egg-info")
    return shutil.copytree(ROOT, tree, ignore=built, symlinks=True)


NATIVE = (
    "vcuda_shim/lib/shim/libcuda.so.1",
    "vcuda_shim/lib/shim/libnvidia-ml.so.1",
    "vcuda_shim/lib/driver/libcuda.so.555.58.02",
    "vcuda_shim/lib/driver/libnvidia-ml.so.555.58.02",
    "vcuda_shim/lib/driver-cuda-13/libcuda.so.615.71.09",
    "vcuda_shim/lib/driver-cuda-13/libnvidia-ml.so.615.71.09",
    "vcuda_shim/lib/clock/libsimclock.so",
    "vcuda_shim/bin/cuda-play",
    "vcuda_shim/bin/cuda-work",
    f"vcuda_shim/_shim{sysconfig.get_config_var('EXT_SUFFIX')}",
    f"vcuda_shim/_sim{sysconfig.get_config_var('EXT_SUFFIX')}",
    f"vcuda_shim/_scheduler{sysconfig.get_config_var('EXT_SUFFIX')}",
)


@pytest.mark.parametrize(
    "name",
    [
        *NATIVE,
        "gpumanager/volume/volume.conf",
        "gpumanager/sim/machines/dgx-a100.yaml",
    ],
)
def test_the_wheel_brings_what_the_code_needs(installed: Path, name: str) -> None:
    assert (installed / name).stat().st_size > 0


def test_the_installed_package_plans(installed: Path, tmp_path: Path) -> None:
    topology = tmp_path / "topo.txt"
    topology.write_text("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n")
    command = [sys.executable, "-P", "-m", "gpumanager", "plan", "--topology", str(topology)]

    finished = subprocess.run(
        [*command, "--request", "200", "--json"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )

    assert finished.stderr == ""
    assert '"gpus": [0, 1]' in finished.stdout


def test_programs_can_be_executed(installed: Path) -> None:
    finished = subprocess.run(
        [installed / "vcuda_shim/bin/cuda-play"], check=False, capture_output=True
    )

    assert finished.returncode == 2


@pytest.mark.namespaces
@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
@pytest.mark.parametrize("where", ["in the checkout", "elsewhere"])
def test_the_installed_command_simulates_wherever_it_is_typed(
    where: str, venv: Path, checkout: Path, tmp_path: Path
) -> None:
    finished = subprocess.run(
        [venv / "bin/gpumanager", "simulate", checkout / "examples/half-a-gpu.yaml"],
        cwd=checkout if where == "in the checkout" else tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_an_editable_install_builds_everything_in_the_source_tree(
    checkout: Path, tmp_path: Path
) -> None:
    tree = shutil.copytree(checkout, tmp_path / "tree", symlinks=True)
    script = "from setuptools.build_meta import build_editable; build_editable('..')"

    subprocess.run([sys.executable, "-c", script], cwd=tree, check=True, timeout=1800)

    assert [name for name in NATIVE if not (tree / name).stat().st_size] == []
