"""The bundle of `make gpu-bundle`, run as on a machine with a GPU: on the simulated one, by a bare
Python, and in a network namespace without a route. That each of its checks passes there and can
fail is the subject of selftest.py; here is what holds for all of them.
"""

import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from uuid import UUID

import gpu_bundle
import pytest
from adopt_gpu_facts import adopt, folder_name

from gpumanager.limits.processes import find
from tests import ROOT
from tests.gpu_check import selftest
from tests.gpu_check.standin_bundle import ISOLATED, Bundle, Run, make_bundle, run

MIB = 1 << 20
CAN_ISOLATE = subprocess.run([*ISOLATED, "true"], check=False, capture_output=True).returncode == 0

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(not CAN_ISOLATE, reason=f"not allowed: {' '.join(ISOLATED)}"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the bundle is for x86-64"),
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def bare(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Without any framework, by a bundle that has lost its x-bits on the way."""
    out = tmp_path_factory.mktemp("bare") / "out"
    for file in bundle.folder.rglob("*"):
        file.chmod(file.stat().st_mode & 0o777666 if file.is_file() else 0o755)
    return run(bundle, out, ("first",))


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

    assert len(compiled) == 11
    assert max(map(newest_glibc, compiled)) <= (2, 17)


def test_the_bare_run_ends_well_and_tells_it_in_four_files(bare: Run) -> None:
    assert (bare.status, bare.left) == (0, []), bare.printed
    names = sorted(path.name for path in bare.out.iterdir())
    assert names == ["checks.jsonl", "facts.jsonl", "gpu-check.json", "logs.tar.gz"]
    assert len(bare.printed) <= 60
    assert "; 0 LOST, 0 FAIL, " in bare.printed[0]


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

    written = adopt([bare.out], tmp_path)

    assert sorted(str(path.relative_to(tmp_path)) for path in written) == [
        "docs/gpu/tesla-t4-555.58.02/checks.jsonl",
        "docs/gpu/tesla-t4-555.58.02/facts.jsonl",
        "tests/native/table/recorded/cuGetProcAddress-555.58.02.txt",
        "tests/native/table/recorded/libnvidia-ml-555.58.02.txt",
    ]
    assert (recorded / "libcuda-555.58.02.txt").read_text() == "known already"


def results_of(folder: Path, gpu: str, *checks: tuple[str, str]) -> Path:
    """checks: each with its verdict, of stage `memory`."""
    folder.mkdir()
    held = {"fact": "NVML held open", "gpus": [[gpu, f"GPU-{UUID(int=7)}"]], "driver": "580.1"}
    facts = [held, {"fact": "file", "path": "/etc/os-release"}, {"fact": folder.name, "value": 1}]
    found = [{"stage": "memory", "check": name, "verdict": verdict} for name, verdict in checks]
    for name, content in (("facts.jsonl", facts), ("checks.jsonl", found)):
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in content))
    with tarfile.open(folder / "logs.tar.gz", "w:gz"):
        pass
    return folder


def test_runs_of_one_gpu_are_adopted_as_one_without_what_names_the_machine(tmp_path: Path) -> None:
    first = results_of(tmp_path / "first", "T4", ("fork", "LOST"), ("managed memory", "pass"))
    again = results_of(tmp_path / "again", "T4", ("fork", "pass"))

    facts, checks = adopt([first, again], tmp_path)

    rows = [json.loads(line) for line in checks.read_text().splitlines()]
    assert [(row["check"], row["verdict"]) for row in rows] == [
        ("managed memory", "pass"),
        ("fork", "pass"),
    ]
    told = [json.loads(line)["fact"] for line in facts.read_text().splitlines()]
    assert told == ["NVML held open", "first", "again"]
    assert str(UUID(int=7)) not in facts.read_text()


def test_runs_of_two_gpus_are_not_adopted_as_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"runs of different GPUs or drivers: l4-580.1, t4-580.1"):
        adopt([results_of(tmp_path / "one", "T4"), results_of(tmp_path / "two", "L4")], tmp_path)


def test_a_folder_of_facts_is_named_by_gpu_and_driver(tmp_path: Path) -> None:
    gpus = [["NVIDIA H100 80GB HBM3", "GPU-1"]]
    row = {"fact": "NVML held open", "gpus": gpus, "driver": "580.159.04"}
    (tmp_path / "facts.jsonl").write_text(json.dumps(row) + "\n")

    assert folder_name(tmp_path) == "nvidia-h100-80gb-hbm3-580.159.04"


def test_every_function_of_the_simulated_driver_is_known_to_the_table(bare: Run) -> None:
    libraries = {row["library"]: row for row in bare.facts if row["fact"] == "library"}

    assert libraries["libcuda"]["symbolic"]
    assert not libraries["libnvidia-ml"]["symbolic"]
    assert libraries["libcuda"]["unknown"] == ["cuSimulatorOnlyFunction"]


def test_entry_points_are_exports_and_are_exchanged_for_hooks(bare: Run) -> None:
    (found,) = bare.findings("entry points of the driver").values()
    (behind,) = bare.findings("entry points behind the shim").values()

    assert (found["verdict"], found["figures"]["foreign"]) == ("pass", 0)
    assert (behind["verdict"], behind["figures"]["bypassed"]) == ("pass", [])
    assert behind["figures"]["exchanged"] > 100


def test_the_runtime_meets_the_driver_in_five_ways_and_its_limit_in_three(bare: Run) -> None:
    cells = bare.findings("CUDA runtime")

    assert list(cells) == ["bare", "99 %", "100 %", "no allocation", "preloaded, 99 %"]
    assert {row["verdict"] for row in cells.values()} == {"pass"}
    assert [row["figures"]["shim"] for row in cells.values()] == [False, True, True, True, True]
    assert [row["figures"]["refused"] for row in cells.values()] == [0, 2, 2, 0, 2]
    peaks = [row["figures"]["peak"] for row in cells.values() if "peak" in row["figures"]]
    assert peaks == [1024 * MIB] * 3
    assert list(bare.findings("CUDA runtime, static")) == ["bare", "99 %"]


def test_what_pytorch_is_needed_for_is_absent_where_there_is_none(bare: Run) -> None:
    assert bare.verdicts("PyTorch") == bare.verdicts("PyTorch, 30 and 60 together") == {"absent"}
    assert bare.printed[-1].startswith("absent ")


def test_a_slow_import_and_a_slow_nvidia_smi_lose_nothing(bundle: Bundle, tmp_path: Path) -> None:
    """PyTorch's first import ends when all that needs none is done."""
    checks = ("CUDA runtime, static", "nvidia-smi", "PyTorch")
    words = ("runtime", "machine", *(word for name in checks for word in ("--check", name)))

    seen = run(
        bundle,
        tmp_path / "out",
        words,
        frameworks=True,
        STANDIN_SECONDS="1",
        STANDIN_WARM=str(tmp_path / "warm"),
        STANDIN_AFTER=str(tmp_path / "out/checks.jsonl") + ":nvidia-smi",
    )

    assert not {"LOST", "FAIL"} & {row["verdict"] for row in seen.checks}, seen.printed
    assert tuple(dict.fromkeys(row["check"] for row in seen.checks)) == checks


def test_a_refusing_runtime_is_narrowed_down_to_the_hook(bundle: Bundle, tmp_path: Path) -> None:
    before, words = dangling(), ("runtime", "--check", "CUDA runtime")

    seen = run(bundle, tmp_path / "out", words, STANDIN_OBJECTS="cuMemAlloc")

    cells = seen.findings("CUDA runtime")
    assert (cells["bare"]["verdict"], cells["99 %"]["verdict"]) == ("pass", "FAIL")
    assert "cudaMalloc answers 103" in cells["99 %"]["said"]
    assert cells["narrow"]["figures"]["suspects"] == ["cuMemAlloc"]
    assert dangling() <= before


def dangling() -> set[Path]:
    """Links of rooms whose run has ended: the folder that it worked in is no more."""
    links = [path for path in Path("/tmp").glob("gc???") if path.is_symlink()]
    return {path for path in links if not Path(*path.readlink().parts[:3]).exists()}


def test_what_there_is_no_gpu_for_is_lost_and_nothing_else(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()

    seen = run(bundle, tmp_path / "out", ("entries",), GPUSIM_DEV=str(tmp_path / "dev"))

    assert seen.status == 3
    assert set(seen.findings("driver libraries")) == {"libcuda", "libnvidia-ml"}
    (behind,) = seen.findings("entry points behind the shim").values()
    assert behind["verdict"] == "LOST"
    assert "no usable GPU (cuInit answers 100; does nvidia-smi list one?)" in behind["said"]


def test_every_check_has_a_mutant_that_breaks_what_it_looks_at() -> None:
    assert {one.check for one in selftest.MUTANTS} == set(selftest.checks())


def test_a_mutant_is_found_by_the_name_of_its_check(bundle: Bundle, tmp_path: Path) -> None:
    (mutant,) = (one for one in selftest.MUTANTS if one.check == "memory limit, driver API")

    seen = selftest.attack(bundle, tmp_path, mutant, "memory")

    assert selftest.row(mutant.check, mutant.broken, seen)[1]
    assert seen.status == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_ended_from_outside_sums_up_what_it_has(
    bundle: Bundle, tmp_path: Path, number: signal.Signals
) -> None:
    """Its program waits for another one, which never ends."""
    waiting = tmp_path / "nvidia-smi"
    waiting.write_text("#!/bin/sh\necho $$ >>begun\nexec sleep 600\n")
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
        process.send_signal(number)
        printed, _ = process.communicate(timeout=300)

    waiting_pids = (tmp_path / "begun").read_text().split()
    assert [find(int(pid)) for pid in waiting_pids] == [None] * len(waiting_pids)
    assert printed.startswith("gpu-check: ")
    rows = json.loads((tmp_path / "out/gpu-check.json").read_text())["checks"]
    assert [(row["check"], row["verdict"]) for row in rows] == [
        ("system", "pass"),
        ("nvidia-smi", "LOST"),
    ]
    assert process.returncode == 3


def test_a_run_whose_terminal_has_gone_keeps_its_files(bundle: Bundle, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [bundle.python, bundle.folder / "benchmarks/check_gpu.py", "--out", "out"]

    finished = subprocess.run(
        [*map(str, command), "machine", "--check", "system"],
        cwd=tmp_path,
        stdout=writing,
        stderr=writing,
        check=False,
    )

    os.close(writing)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["checks.jsonl", "facts.jsonl", "gpu-check.json", "logs.tar.gz"]
    assert finished.returncode == 0


def test_bad_usage_ends_with_2(bundle: Bundle) -> None:
    command = ["sh", str(bundle.folder / "gpu-check.sh"), "nonsense"]
    environment = os.environ | {"PYTHON": str(bundle.python)}

    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert finished.returncode == 2
    assert "no stage nonsense: there are first, rest, all, or stages of entries" in finished.stderr


def test_make_has_the_targets() -> None:
    make = shutil.which("make")
    assert make is not None
    command = [make, "-n", "gpu-check", "TORCH=some-python", "STAGES=machine"]

    finished = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)

    assert "benchmarks/gpu_bundle.py" in finished.stdout
    assert "PYTHON=some-python build/gpu-bundle/gpu-check.sh machine" in finished.stdout
