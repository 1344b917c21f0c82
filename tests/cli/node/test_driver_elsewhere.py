"""An agent in a container: the driver is the host's, where no dynamic linker of ours looks."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.sim.host import NodeDisk, furnish, make_disk
from gpumanager.sim.machines import load_machine
from gpumanager.volume.driver import find_nvml

MACHINE = "two-socket-pcie-8"


@pytest.fixture
def disk() -> Iterator[NodeDisk]:
    made = make_disk()
    gpus = furnish(made, load_machine(MACHINE))
    yield made
    gpus.close()
    made.remove()


def test_the_drivers_nvml_is_found_below_its_root(disk: NodeDisk) -> None:
    found = find_nvml(disk.root)

    assert found is not None
    assert found.resolve() == (disk.libraries / "libnvidia-ml.so.1").resolve()


def test_where_no_driver_is_nothing_is_found(tmp_path: Path) -> None:
    assert find_nvml(tmp_path) is None


def test_gpus_are_seen_by_the_nvml_of_another_root(disk: NodeDisk) -> None:
    environment = {**os.environ, "GPUSIM_DEV": str(disk.base / "dev")}
    environment.pop("LD_LIBRARY_PATH", None)
    words = ("doctor", "--driver-root", disk.root, "--device-directory", disk.base / "dev")

    done = subprocess.run(
        [sys.executable, "-m", "gpumanager", *map(str, words), "--json"],
        check=False,
        capture_output=True,
        timeout=600,
        env=environment,
    )

    findings = {one["part"]: one for one in json.loads(done.stdout)["findings"]}
    assert findings["GPUs"]["found"].startswith("8 x ")
