"""Pure units of shim and scheduler under the compiler's sanitizers: raced, by their own tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vcuda_shim
from tests import ROOT
from tests.native.core import few_examples, sanitized
from tests.native.core.sanitized import UNMAPPABLE, SanitizerAbsentError
from vcuda_shim.build import build, compiler, run, sources

HERE = Path(__file__).parent
STORMS = sorted(HERE.glob("*_storm.c"))


def of_units(test: Path) -> bool:
    """Does it drive pure units through cffi, and start nothing else?"""
    drives = re.compile(r"vcuda_shim\._(shim|scheduler) import")
    return test != Path(__file__) and drives.search(test.read_text()) is not None


UNIT_TESTS = [
    *filter(of_units, sorted(HERE.rglob("test_*.py"))),
    ROOT / "tests/limits/pages/test_regions.py",
]

BEYOND_ITS_END = """
import vcuda_shim._shim as shim
print(shim.__file__, flush=True)
shape = shim.ffi.cast("struct array_shape *", shim.ffi.new("char[8]"))
print(shim.lib.array_size(shape))
"""


@pytest.mark.parametrize("storm", STORMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("sanitizers", ["thread", "address,undefined"])
def test_threads_and_processes_race_for_nothing_that_is_not_atomic(
    storm: Path, sanitizers: str, tmp_path: Path
) -> None:
    files = [storm, *sources(sanitized.SHIM / "core")]
    try:
        program = sanitized.build(tmp_path / "storm", files, sanitizers)
    except SanitizerAbsentError:
        pytest.skip(f"the compiler comes without -fsanitize={sanitizers}")

    ran = subprocess.run(
        [program, tmp_path / "books"], check=False, capture_output=True, text=True, timeout=600
    )

    if UNMAPPABLE in ran.stderr:
        pytest.skip("this kernel places memory where the compiler's runtime does not expect it")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """One in which Python finds the cffi module as the sanitizers have it."""
    package = tmp_path / "vcuda_shim"
    package.mkdir()
    words = [*compiler(), *sanitized.options("address,undefined")]
    with monkeypatch.context() as patched:
        patched.setenv("CC", " ".join(words))
        try:
            build(package, ["shim-module"])
        except Exception as error:
            if sanitized.ABSENT in str(error):
                pytest.skip("the compiler comes without -fsanitize=address,undefined")
            raise
    home = Path(vcuda_shim.__file__).parent
    for file in (home / "__init__.py", home / "build.py", *home.glob("_sim*.so")):
        shutil.copy2(file, package)
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT))),
        "PYTHONSAFEPATH": "1",  # or the folder we are in would come first
        "LD_PRELOAD": run([*compiler(), "-print-file-name=libasan.so"]).strip(),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own; the storm looks for ours
    }


def test_the_tests_of_every_unit_pass_and_nothing_reads_or_writes_out_of_bounds(
    environment: dict[str, str], tmp_path: Path
) -> None:
    planted = subprocess.run(
        [sys.executable, "-c", BEYOND_ITS_END],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    if UNMAPPABLE in planted.stderr:
        pytest.skip("this kernel places memory where the compiler's runtime does not expect it")
    plugins = ["-p", "no:cacheprovider", "-p", few_examples.__name__, "--hypothesis-profile=few"]
    # The project's own folder comes behind the package of the sanitizers.
    later = ["--import-mode=append", "-o", "pythonpath=benchmarks"]
    tests = [sys.executable, "-m", "pytest", "-q", "-x", *plugins, *later, *map(str, UNIT_TESTS)]
    ran = subprocess.run(
        tests, env=environment, check=False, capture_output=True, text=True, timeout=1800
    )

    assert planted.stdout.startswith(str(tmp_path))
    assert "heap-buffer-overflow" in planted.stderr
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"tested: {tmp_path}" in ran.stdout


def test_no_unit_is_left_out() -> None:
    text = "".join(path.read_text() for path in (*STORMS, *UNIT_TESTS))

    for unit in sources(sanitized.SHIM / "core"):
        functions = [word for word in declared(unit.with_suffix(".h")) if word in text]
        assert functions, f"{unit.name}: driven by nothing that runs under sanitizers"


def declared(header: Path) -> set[str]:
    """The functions of a unit: each begins with its name, or with that of what it is about."""
    lines = header.read_text().splitlines()
    ends = [line.partition("(")[0].split() for line in lines if line[:1].isalpha() and "(" in line]
    return {words[-1].lstrip("*") for words in ends}
