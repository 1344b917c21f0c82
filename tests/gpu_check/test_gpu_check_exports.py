"""What the check reads of the driver's libraries."""

from pathlib import Path

import pytest
from gpu_check.exports import read_exports
from gpu_check.outcome import Lost

import vcuda_shim
from tests.native.table import elf

LIBRARIES = (
    vcuda_shim.SHIM_CUDA,
    vcuda_shim.SHIM_NVML,
    *sorted(vcuda_shim.SIMULATED_DRIVER.glob("lib*.so.*")),
)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_exports_and_version_nodes_are_read(library: Path) -> None:
    seen = read_exports(library)

    assert seen.symbols.keys() == elf.exported(library)
    assert seen.nodes == elf.versions_defined(library)
    assert set(seen.own_slots) <= seen.symbols.keys()


def test_a_library_whose_own_calls_can_be_interposed_is_told_from_one_that_binds_them() -> None:
    cuda, nvml = LIBRARIES[2:]

    assert (read_exports(cuda).symbolic, read_exports(cuda).own_slots) == (True, [])
    assert not read_exports(nvml).symbolic
    assert "nvmlDeviceGetMemoryInfo_v2" in read_exports(nvml).own_slots


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "libcuda.so.1"
    script.write_text("#!/bin/sh\n")

    with pytest.raises(Lost, match="is no shared library that can be read"):
        read_exports(script)
