"""`make gpu-check` from the outside: on a simulated GPU, and where something is missing.

PyTorch, Triton and CuPy are stand-ins (standins/) that know the names that the workloads use, take
memory and launch kernels through the driver, and compute one number for a whole tensor. On a real
GPU nothing of this has run here.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from frameworks import FRAMEWORKS
from gpu_check.checks import SLOW, WITH_TORCH
from sim_box import SimBox, sim_box

COMMAND = Path(__file__).parents[2] / "benchmarks" / "check_gpu.py"


def check(*words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(COMMAND), *words],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box() as made:
        yield made


@pytest.fixture
def torchless() -> str:
    if importlib.util.find_spec("torch"):
        pytest.skip("this Python has PyTorch")
    return sys.executable


def only_line(finished: subprocess.CompletedProcess[str]) -> str:
    assert (finished.returncode, finished.stdout) == (1, "")
    (line,) = finished.stderr.splitlines()
    return line


def test_without_driver_pytorch_and_compiler_one_line_names_them_all(torchless: str) -> None:
    environment = os.environ | {"LD_LIBRARY_PATH": "", "CC": "no-such-compiler -O1"}

    line = only_line(check("--python", torchless, environment=environment))

    assert line.startswith("gpu-check: cannot run here: no C compiler 'no-such-compiler'")
    assert "no NVIDIA driver (libcuda.so.1 and libnvidia-ml.so.1 not found" in line
    assert f"no PyTorch in {torchless}" in line


def test_a_driver_without_a_gpu_is_said_with_what_it_answers(box: SimBox, tmp_path: Path) -> None:
    environment = box.environment(GPUSIM_DEV=str(tmp_path))

    line = only_line(check("--driver-only", "--python", sys.executable, environment=environment))

    assert "no usable GPU (cuInit answers 100; does nvidia-smi list one?)" in line


def test_a_python_that_is_not_there_is_said(box: SimBox) -> None:
    line = only_line(check("--python", "no-such-python", environment=box.environment()))

    assert "no usable Python 'no-such-python' (" in line


def test_a_pytorch_that_cannot_use_the_gpu_is_no_fault_of_the_shim(
    box: SimBox, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart is missing')\n")
    environment = box.environment(PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")

    line = only_line(check("--python", sys.executable, environment=environment))

    assert "PyTorch cannot use the GPU even without the shim" in line
    assert "libcudart is missing" in line


def test_bad_usage_ends_with_2(box: SimBox) -> None:
    assert check("--nonsense", environment=box.environment()).returncode == 2


def quick(file: Path, *words: str, **environment: str) -> dict[str, Any]:
    """What the quick check wrote, and its table."""
    with sim_box() as box:
        command = ("--quick", *words, "--python", sys.executable, "--json", str(file))
        finished = check(*command, environment=box.environment(**environment))
        left = list(box.gpus.processes())
    assert finished.stderr == "" or "Traceback" not in finished.stderr
    answer: dict[str, Any] = json.loads(file.read_text())
    return answer | {"table": finished.stdout, "status": finished.returncode, "left": left}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of the driver alone."""
    return quick(tmp_path_factory.mktemp("check") / "check.json", "--driver-only")


@pytest.fixture(scope="module")
def with_frameworks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return quick(
        tmp_path_factory.mktemp("check") / "check.json",
        PYTHONPATH=":".join(map(str, (*FRAMEWORKS, os.environ.get("PYTHONPATH", "")))),
    )


def findings(written: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    (found,) = [check["findings"] for check in written["checks"] if check["check"] == name]
    return list(found)


def test_the_limit_is_exact_on_the_simulated_gpu(written: dict[str, Any]) -> None:
    (found,) = findings(written, "memory limit, driver API")

    assert found["verdict"] == "pass", found
    assert found["figures"]["peak"] == found["figures"]["limit"] == 3 << 30
    assert found["figures"]["driver"] <= 3 << 30


def test_all_views_of_memory_agree_on_the_simulated_gpu(written: dict[str, Any]) -> None:
    (found,) = findings(written, "views of memory")

    assert found["verdict"] == "pass", found
    assert set(found["figures"]["views"]) >= {"cuMemGetInfo", "cuDeviceTotalMem", "NVML"}


def test_a_launch_is_measured_with_and_without_a_limit(written: dict[str, Any]) -> None:
    without, limited = findings(written, "launch overhead")

    assert (without["about"], limited["about"][:8]) == ("no compute limit", "limit 99")
    assert without["figures"]["driver_ns"] > 0


def test_a_share_is_held_on_the_simulated_gpu(written: dict[str, Any]) -> None:
    """Far from the GPU's whole time: how near is the benchmark's question, on a quiet machine."""
    (found,) = findings(written, "share, spinning kernels")

    (got,) = found["figures"]["got"]
    assert found["about"] == "2 ms, async"
    assert 15 < got < 45, found


def test_the_table_names_gpu_driver_and_file(written: dict[str, Any]) -> None:
    assert written["table"].startswith("Tesla T4, 16384 MiB, driver 555.58.02")
    assert "written to " in written["table"]
    assert written["status"] == (0 if written["passed"] else 1)


def test_nothing_of_the_check_is_left_behind(written: dict[str, Any]) -> None:
    assert written["left"] == []
    assert written["seconds"] < 480


FRAMEWORK_CHECKS = [
    check.name for check in WITH_TORCH if set(check.needs) & {"torch", "triton", "cupy"}
]


@pytest.mark.parametrize("name", [name for name in FRAMEWORK_CHECKS if name not in SLOW])
def test_what_uses_a_framework_passes_with_its_stand_in(
    with_frameworks: dict[str, Any], name: str
) -> None:
    (found,) = findings(with_frameworks, name)

    assert found["verdict"] == "pass", found


def test_pytorchs_view_of_memory_is_compared_too(with_frameworks: dict[str, Any]) -> None:
    (found,) = findings(with_frameworks, "views of memory")

    assert found["verdict"] == "pass", found
    assert "PyTorch" in found["figures"]["views"]


def test_make_has_the_target() -> None:
    make = shutil.which("make")
    assert make is not None
    root = COMMAND.parents[1]
    command = [make, "-n", "gpu-check", "TORCH=some-python", f"VENV={root}/nowhere"]

    finished = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)

    assert "benchmarks/check_gpu.py --python some-python" in finished.stdout
