"""Test builds of the shim leave functions unhooked on demand; the product cannot."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from driver_libraries import lay_out

from tests.native.shim_container import build_cuda_shim
from vcuda_shim import SHIM_CUDA, SIMULATED_DRIVER

VARIABLE = "VCUDA_UNHOOKED"
ASKED = ("cuMemAlloc", "cuMemAllocAsync", "cuMemFree", "cuLaunchKernel", "cuInit")

SCRIPT = f"""
import ctypes, json
shim, real = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libvcuda-real.so.1")
def answer(library, name):
    entry = ctypes.c_void_p()
    library.cuGetProcAddress_v2(name.encode(), ctypes.byref(entry), 12050, ctypes.c_uint64(0), None)
    return entry.value
print(json.dumps([name for name in {ASKED} if answer(shim, name) == answer(real, name)]))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated driver behind a shim built for tests."""
    folder = tmp_path_factory.mktemp("unhooked")
    define = f'-D{VARIABLE}="{VARIABLE}"'
    shim = build_cuda_shim(folder, define)
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    directory = lay_out(folder / "driver", cuda, nvml)
    (directory / "libcuda.so.1").unlink()
    (directory / "libcuda.so.1").symlink_to(shim)
    return directory


@pytest.mark.parametrize(
    ("unhooked", "own"),
    [
        ("", []),
        ("cuMemAlloc_v2", ["cuMemAlloc"]),
        ("cuMemAlloc", ["cuMemAlloc"]),
        ("alloc", ["cuMemAlloc", "cuMemAllocAsync"]),
        ("launch,cuMemFree,cuNothing", ["cuMemFree", "cuLaunchKernel"]),
    ],
)
def test_kinds_families_and_exports_named_by_the_variable_are_the_drivers_own(
    libraries: Path, unhooked: str, own: list[str]
) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"LD_LIBRARY_PATH": str(libraries), VARIABLE: unhooked},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(finished.stdout) == own


def test_the_product_does_not_know_the_variable() -> None:
    assert VARIABLE.encode() not in SHIM_CUDA.read_bytes()
