"""Each correction of the model of GPU time can be taken out, and what is left builds."""

import shutil
from pathlib import Path

import pytest
from compute.ablation import (
    COPIED,
    CORRECTIONS,
    ROOT,
    Edit,
    NotOnce,
    cases_of,
    copy_without,
    named,
)
from compute.grid import cases, chosen
from compute.program import words_without

from gpumanager.errors import GpuManagerError


def test_each_text_stands_once_in_the_sources_and_python_can_be_read_without_it(
    tmp_path: Path,
) -> None:
    for edit in (edit for one in CORRECTIONS for edit in one.edits):
        target = tmp_path / edit.file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / edit.file, target)
        edit.apply(tmp_path)
        assert target.read_text() != (ROOT / edit.file).read_text()
        if target.suffix == ".py":
            compile(target.read_text(), str(target), "exec")


def test_each_correction_has_a_name_of_its_own_and_cases_to_be_measured_by() -> None:
    assert len({one.name for one in CORRECTIONS}) == len(CORRECTIONS)
    assert all(chosen([case], cases()) for one in CORRECTIONS for case in one.cases)
    assert all(one.cases for one in CORRECTIONS)
    assert cases_of(["interval union", "sampling window"]) == sorted(named("interval union").cases)


def test_a_shim_without_all_its_corrections_is_built() -> None:
    native = [
        one.name for one in CORRECTIONS if any(edit.file.startswith("native") for edit in one.edits)
    ]
    with copy_without(native) as root:
        built = (root / "vcuda_shim" / "lib" / "shim" / "libcuda.so.1").read_bytes()
        kept = (ROOT / "vcuda_shim" / "lib" / "shim" / "libcuda.so.1").read_bytes()
        assert all((root / part).is_dir() for part in COPIED)

    assert len(native) > 5
    assert built != kept


def test_a_text_that_is_not_there_once_and_a_name_that_nothing_has_are_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("twice twice")

    with pytest.raises(NotOnce, match="file has not once but 2 times"):
        Edit("file", "twice", "once").apply(tmp_path)
    with pytest.raises(GpuManagerError, match="no correction is called x; there are"):
        named("x")


def test_a_copy_is_run_with_the_same_options_but_its_own_cases() -> None:
    words = ["--without", "capacity", "--driver", "real", "--case", "two/*", "--strict"]

    assert words_without(words) == ["--driver", "real", "--strict"]
