"""The shim loads wherever the driver does: it needs nothing that other libraries can use up.

The loader has little space in threads' own blocks for libraries that are loaded late, and libraries
with initial-exec TLS, as many run-times have, use it up.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from driver_libraries import lay_out

from vcuda_shim import SIMULATED_DRIVER

TAKING = """
static __thread char taken[16] __attribute__((tls_model("initial-exec")));
char *take(void) { taken[0]++; return taken; }
"""
COPIES = 1000

SCRIPT = f"""
import ctypes, json, sys, threading
folder, *names = sys.argv[1:]
taken, full = 0, ""
while not full and taken < {COPIES}:
    try:
        ctypes.CDLL(f"{{folder}}/{{taken}}.so")
        taken += 1
    except OSError as error:
        full = str(error)
libraries = [ctypes.CDLL(name) for name in names]
answers = []
def call():
    for library in libraries:
        for function in ("cuInit", "nvmlInitWithFlags"):
            if hasattr(library, function):
                answers.append(getattr(library, function)(0))
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([full.rpartition(": ")[2], answers]))
"""


@pytest.fixture(scope="module")
def takers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries that take 16 bytes each."""
    folder = tmp_path_factory.mktemp("takers")
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "0.so")]
    subprocess.run(command, input=TAKING, text=True, check=True, timeout=300)
    for number in range(1, COPIES):
        shutil.copy(folder / "0.so", folder / f"{number}.so")
    return folder


@pytest.mark.parametrize("shim", [False, True], ids=["bare", "behind the shim"])
@pytest.mark.parametrize("suffix", ["so", "so.1"])
def test_the_libraries_load_and_answer_where_no_static_tls_is_left(
    tmp_path: Path,
    takers: Path,
    shim: bool,  # noqa: FBT001
    suffix: str,
) -> None:
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    libraries = lay_out(tmp_path / "lib", cuda, nvml, shim=shim)
    names = [f"lib{name}.{suffix if shim else 'so.1'}" for name in ("cuda", "nvidia-ml")]

    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(takers), *names],
        env={"LD_LIBRARY_PATH": str(libraries), "GPUSIM_DEV": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert finished.returncode == 0, finished.stderr
    full, answers = json.loads(finished.stdout)
    assert full == "cannot allocate memory in static TLS block"
    assert len(answers) == 8
    assert len(set(answers)) == 2
