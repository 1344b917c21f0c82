"""The bundle of `make gpu-bundle`, run as on a machine with a GPU: on the simulated one, by a bare
Python, and in a network namespace without a route.

PyTorch, Triton and CuPy are stand-ins (standins/) that know the names that the workloads use, take
memory and launch kernels through the driver, and compute one number for a whole tensor. So is the
CUDA runtime.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_bundle
import pytest
from adopt_gpu_facts import adopt, folder_name
from gpu_check.stages.memory import CHECKS

from tests import ROOT
from tests.gpu_check.frameworks import FRAMEWORKS
from tests.native.sim_box import sim_box

MIB = 1 << 20
STANDINS = Path(__file__).with_name("standins")
ISOLATED = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--net"]
CAN_ISOLATE = subprocess.run([*ISOLATED, "true"], check=False, capture_output=True).returncode == 0

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(not CAN_ISOLATE, reason=f"not allowed: {' '.join(ISOLATED)}"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the bundle is for x86-64"),
]


@dataclass(frozen=True, slots=True)
class Bundle:
    """folder: the bundle. python: one with nothing but the standard library. cudart: a stand-in."""

    folder: Path
    python: Path
    cudart: Path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """For this Python's version: others' packages come over the network."""
    here = tmp_path_factory.mktemp("bundle")
    gpu_bundle.make(here / "gpu-bundle", (), test_build=True)
    command = [sys.executable, "-m", "venv", "--without-pip", str(here / "venv")]
    subprocess.run(command, check=True)
    cudart, source = here / "libcudart.so.12", STANDINS / "libcudart.c"
    compiler = ["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(cudart), str(source), "-ldl"]
    subprocess.run(compiler, check=True)
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


def run(
    bundle: Bundle, out: Path, stages: Sequence[str], environment: Mapping[str, str], **more: str
) -> Run:
    """On a simulated GPU, from a folder that is not the bundle's."""
    with sim_box() as box:
        inherited = box.environment(
            OUT=str(out), PYTHON=str(bundle.python), GPU_CHECK_SLOWNESS="10"
        )
        inherited = {name: inherited[name] for name in inherited if name != "PYTHONPATH"}
        finished = subprocess.run(
            [*ISOLATED, str(bundle.folder / "gpu-check.sh"), *stages],
            env=inherited | dict(environment) | more,
            cwd=out.parent,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        left = list(box.gpus.processes())
    assert finished.stdout, finished.stderr
    lines = [(out / name).read_text().splitlines() for name in ("checks.jsonl", "facts.jsonl")]
    checks, facts = ([json.loads(line) for line in rows] for rows in lines)
    return Run(out, finished.returncode, finished.stdout.splitlines(), checks, facts, left)


@pytest.fixture(scope="module")
def bare(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Without any framework."""
    out = tmp_path_factory.mktemp("bare") / "out"
    return run(bundle, out, ("machine", "entries", "runtime"), {"CUDART": str(bundle.cudart)})


@pytest.fixture(scope="module")
def with_frameworks(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("frameworks") / "out"
    path = ":".join(map(str, FRAMEWORKS))
    return run(bundle, out, ("memory",), {"PYTHONPATH": path})


def test_the_bundle_fits_what_travels_with_a_call(bundle: Bundle) -> None:
    files = [path for path in bundle.folder.rglob("*") if path.is_file()]

    assert sum(path.stat().st_size for path in files) <= 60 * MIB
    assert {"gpu-check.sh", "programs", "site"} <= {path.name for path in bundle.folder.iterdir()}
    assert not [path for path in files if path.suffix == ".pyc"]
    assert gpu_bundle.listing(bundle.folder)[-1].endswith(f"KiB  in {len(files)} files")


def test_all_that_is_compiled_runs_on_an_old_libc(bundle: Bundle) -> None:
    from tests.native.table.elf import newest_glibc

    compiled = [*bundle.folder.glob("programs/*"), *bundle.folder.rglob("lib/*/*.so.1")]
    compiled += bundle.folder.glob("vcuda_shim/*.so")

    assert len(compiled) == 7
    assert max(map(newest_glibc, compiled)) <= (2, 17)


def test_the_bare_run_ends_well_and_tells_it_in_four_files(bare: Run) -> None:
    assert (bare.status, bare.left) == (0, []), bare.printed
    names = sorted(path.name for path in bare.out.iterdir())
    assert names == ["checks.jsonl", "facts.jsonl", "gpu-check.json", "logs.tar.gz"]
    assert len(bare.printed) <= 60
    assert " 0 FAIL, " in bare.printed[0]


def test_what_is_to_be_recorded_of_a_driver_is_in_the_archive(bare: Run) -> None:
    recorded = ROOT / "tests/native/table/recorded"
    with tarfile.open(bare.out / "logs.tar.gz") as archive:
        files = {
            Path(member.name).name.removeprefix("recorded-"): archive.extractfile(member)
            for member in archive.getmembers()
            if "recorded-" in member.name
        }
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}

    assert set(texts) == {
        "libcuda-555.58.02.txt",
        "libnvidia-ml-555.58.02.txt",
        "cuGetProcAddress-555.58.02.txt",
    }
    for name, text in texts.items():  # the simulated driver has some newer functions, too
        known = (recorded / name).read_text().splitlines()
        assert {line for line in known if not line.startswith("#")} <= set(text.splitlines()), name


def test_a_run_is_adopted_into_the_repository(bare: Run, tmp_path: Path) -> None:
    recorded = tmp_path / "tests/native/table/recorded"
    recorded.mkdir(parents=True)
    (recorded / "libcuda-555.58.02.txt").write_text("known already")

    written = adopt(bare.out, tmp_path)

    assert sorted(str(path.relative_to(tmp_path)) for path in written) == [
        "docs/gpu/unknown-unknown/checks.jsonl",
        "docs/gpu/unknown-unknown/facts.jsonl",
        "tests/native/table/recorded/cuGetProcAddress-555.58.02.txt",
        "tests/native/table/recorded/libnvidia-ml-555.58.02.txt",
    ]
    assert (recorded / "libcuda-555.58.02.txt").read_text() == "known already"


def test_a_folder_of_facts_is_named_by_gpu_and_driver(tmp_path: Path) -> None:
    row = {"fact": "nvidia-smi", "name": "NVIDIA H100 80GB HBM3", "driver_version": "580.159.04"}
    (tmp_path / "facts.jsonl").write_text(json.dumps(row) + "\n")

    assert folder_name(tmp_path) == "nvidia-h100-80gb-hbm3-580.159.04"


def test_every_function_of_the_simulated_driver_is_known_to_the_table(bare: Run) -> None:
    libraries = {row["library"]: row for row in bare.facts if row["fact"] == "library"}

    assert libraries["libcuda"]["symbolic"]
    assert not libraries["libnvidia-ml"]["symbolic"]
    assert libraries["libcuda"]["unknown"] == ["cuSimulatorOnlyFunction"]


def test_entry_points_are_exports_and_are_exchanged_for_hooks(bare: Run) -> None:
    (found,) = bare.findings("entry points of the driver").values()
    assert (found["verdict"], found["figures"]["foreign"]) == ("pass", 0)

    behind = bare.findings("entry points behind the shim")
    assert [row["verdict"] for row in behind.values()] == ["pass", "pass"]
    exchanged = {about: row["figures"]["exchanged"] for about, row in behind.items()}
    assert 50 < exchanged["100 %"] < exchanged["50 %"]  # a whole GPU needs no limit of its time


def test_the_runtime_meets_the_driver_in_five_ways(bare: Run) -> None:
    cells = bare.findings("CUDA runtime")

    assert list(cells) == ["bare", "no allocation", "100 %", "50 %", "preloaded, 50 %"]
    assert {row["verdict"] for row in cells.values()} == {"pass"}
    assert [row["figures"]["shim"] for row in cells.values()] == [False, True, True, True, True]


def test_a_refusing_runtime_is_narrowed_down_to_the_hook(bundle: Bundle, tmp_path: Path) -> None:
    environment = {"CUDART": str(bundle.cudart), "STANDIN_OBJECTS": "cuMemAlloc"}
    before = dangling()

    cells = run(bundle, tmp_path / "out", ("runtime",), environment).findings("CUDA runtime")

    assert (cells["bare"]["verdict"], cells["50 %"]["verdict"]) == ("pass", "FAIL")
    assert "cudaMalloc answers 103" in cells["50 %"]["said"]
    assert cells["narrow"]["figures"]["suspects"] == ["cuMemAlloc"]
    assert dangling() <= before


def dangling() -> set[Path]:
    """Links of rooms whose run has ended; a room that is being made has one that leads nowhere."""
    links = [path for path in Path("/tmp").glob("gc???") if path.is_symlink()]
    return {path for path in links if not path.exists() and path.readlink().is_absolute()}


def test_what_there_is_no_gpu_for_is_a_failure_of_its_checks_and_of_no_other(
    bundle: Bundle, tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()

    seen = run(
        bundle, tmp_path / "out", ("machine", "entries"), {}, GPUSIM_DEV=str(tmp_path / "dev")
    )

    assert seen.status == 1
    assert len(seen.findings("driver libraries")) == 2
    (behind,) = seen.findings("entry points behind the shim").values()
    assert "no usable GPU (cuInit answers 100; does nvidia-smi list one?)" in behind["said"]


@pytest.mark.parametrize("check", [one.name for one in CHECKS])
def test_a_check_of_memory_passes_on_the_simulated_gpu(with_frameworks: Run, check: str) -> None:
    (found,) = with_frameworks.findings(check).values()

    assert found["verdict"] == "pass", found


def test_the_limit_is_exact_on_the_simulated_gpu(with_frameworks: Run) -> None:
    (found,) = with_frameworks.findings("memory limit, driver API").values()

    assert found["figures"]["peak"] == found["figures"]["limit"] == 3 << 30
    assert found["figures"]["driver"] <= 3 << 30


def test_all_views_of_memory_are_compared(with_frameworks: Run) -> None:
    (found,) = with_frameworks.findings("views of memory").values()

    views = set(found["figures"]["views"])
    assert views >= {"cuMemGetInfo", "cuDeviceTotalMem", "NVML", "PyTorch"}


def test_a_run_that_is_ended_from_outside_sums_up_what_it_has(
    bundle: Bundle, tmp_path: Path
) -> None:
    """On its first stage the program waits for another one, which never ends."""
    waiting = tmp_path / "nvidia-smi"
    waiting.write_text("#!/bin/sh\ntouch begun\nexec sleep 600\n")
    waiting.chmod(0o755)
    command = [bundle.python, bundle.folder / "benchmarks/check_gpu.py", "--out", "out", "machine"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["GPU_CHECK_SLOWNESS"] = "20"
    with subprocess.Popen(
        list(map(str, command)), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        printed, _ = process.communicate(timeout=300)

    assert printed.startswith("gpu-check: ")
    assert (
        json.loads((tmp_path / "out/gpu-check.json").read_text())["checks"][0]["check"] == "system"
    )


def test_bad_usage_ends_with_2(bundle: Bundle) -> None:
    command = [str(bundle.folder / "gpu-check.sh"), "nonsense"]
    environment = os.environ | {"PYTHON": str(bundle.python)}

    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert finished.returncode == 2
    assert "no stage nonsense: there are machine, facts, entries" in finished.stderr


def test_make_has_the_targets() -> None:
    make = shutil.which("make")
    assert make is not None
    root = Path(__file__).parents[2]
    command = [make, "-n", "gpu-check", "TORCH=some-python", "STAGES=machine"]

    finished = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)

    assert "benchmarks/gpu_bundle.py" in finished.stdout
    assert "PYTHON=some-python build/gpu-bundle/gpu-check.sh machine" in finished.stdout
