"""Every function of the driver is hooked, or said not to be and why: against recorded drivers."""

import re
from pathlib import Path

import pytest

from tests.native.table.hook_table import TABLE, declared, hooked, load, recorded, unhooked

EXPORTS = {
    "cuda": ("libcuda-550.163.01", "libcuda-555.58.02", "libcuda-580.159.04"),
    "nvml": ("libnvidia-ml-550.163.01", "libnvidia-ml-555.58.02", "libnvidia-ml-580.159.04"),
}
UNRECORDED = {"cuGetProcAddress_v2_ptsz"}
"""Written out by the headers, around another function; no recorded driver has it."""

libraries = pytest.mark.parametrize("library", ["cuda", "nvml"])


def exports(library: str) -> dict[str, str]:
    """Name and kind (FUNC, OBJECT) of all that a recorded driver exports."""
    return {name: kind for file in EXPORTS[library] for name, kind in recorded(file)}


@libraries
def test_each_export_of_a_real_driver_is_hooked_or_placed_never_both(library: str) -> None:
    ours, left = set(hooked(library)), set(unhooked(library))

    files = f"native/table/{library}.hooks and {library}.census"
    assert set(exports(library)) - ours - left == set(), f"write each into one of {files}"
    assert ours & left == set(), f"in both of {files}: a hooked function leaves the census"


@libraries
def test_nothing_is_placed_that_no_driver_and_no_header_has(library: str) -> None:
    known = {*exports(library), *declared(library), *UNRECORDED}

    assert {*hooked(library), *unhooked(library)} - known == set()


@libraries
def test_what_is_not_a_function_is_placed_as_such(library: str) -> None:
    objects = {name for name, kind in exports(library).items() if kind == "OBJECT"}

    assert {name for name, why in unhooked(library).items() if why == "variable"} == objects


@libraries
def test_nothing_that_needs_a_hook_is_left_without(library: str) -> None:
    assert [name for name, why in unhooked(library).items() if why == "hole"] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("host: memory\n    cuA cuA", ":2: cuA is placed already"),
        ("host: memory\n    cuA _v2\nother: x\n    cuA_v2", ":4: cuA_v2 is placed already"),
        ("host: a\n  cuA\nhost: b\n  cuB", ":3: class host is there already"),
        ("Host memory\n    cuA", ":1: expected `class: reason`"),
        ("    cuA", ":1: symbols before the first"),
        ("host: memory\n    _v2", ":2: _v2 is a variant of nothing"),
    ],
)
def test_a_malformed_census_stops_and_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "cuda.census"
    path.write_text(text)

    with pytest.raises(SystemExit, match=re.escape(f"{path}{complaint}")):
        load("census").parse_census(path)


def test_the_table_for_people_is_written_from_the_tables() -> None:
    made = load("document").document(load("generate"), load("census"))

    page = TABLE.parents[1] / "docs" / "hooks.md"
    assert page.read_text() == made, "run `python native/table/document.py`"
