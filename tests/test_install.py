"""`pip install .` brings all that works without the source tree; `-e .` builds all in it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, unpacked: what pip would put into site-packages."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(out), str(ROOT)], check=True, timeout=300)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
        for member in archive.infolist():  # extractall drops modes
            (out / "site" / member.filename).chmod(member.external_attr >> 16 or 0o644)
    return out / "site"


NATIVE = (
    "vcuda_shim/lib/shim/libcuda.so.1",
    "vcuda_shim/lib/shim/libnvidia-ml.so.1",
    "vcuda_shim/lib/driver/libcuda.so.555.58.02",
    "vcuda_shim/lib/driver/libnvidia-ml.so.555.58.02",
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


def test_an_editable_install_builds_everything_in_the_source_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    built = shutil.ignore_patterns(".*", "lib", "bin", "*.so", "build", "*.egg-info")
    shutil.copytree(ROOT, tree, ignore=built, symlinks=True)
    script = "from setuptools.build_meta import build_editable; build_editable('..')"

    subprocess.run([sys.executable, "-c", script], cwd=tree, check=True, timeout=300)

    assert [name for name in NATIVE if not (tree / name).stat().st_size] == []
