"""Nothing of NVIDIA's headers is unknown: functions, values, fields and types, by version.

What the headers declare is committed as names and numbers (native/table/*.headers). `make headers`
fetches the headers themselves; the test of those is skipped without.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.native.shim_container import INCLUDE
from tests.native.table.hook_table import TABLE, hooked, load, unhooked
from vcuda_shim._shim import lib

ROOT = TABLE.parents[1]
FETCHED = ROOT / ".headers"
VERSIONS = {
    "cuda": ["12.8", "12.9", "13.0", "13.1", "13.2", "13.3", "13.4", "13.5"],
    "nvml": ["13.5"],
}
OLDER = {"CUDA_MEM_ALLOC_NODE_PARAMS": "CUDA_MEM_ALLOC_NODE_PARAMS_v1"}
"""What the headers call a struct that the shim declares."""

headers = load("headers")
libraries = pytest.mark.parametrize("library", ["cuda", "nvml"])


def known(library: str) -> Mapping[str, Any]:
    """What was read of the headers of a library, by version."""
    found: Mapping[str, Any] = headers.parse(TABLE / f"{library}.headers", load("census").expand)
    return found


def functions(library: str) -> set[str]:
    return {*hooked(library), *unhooked(library)}


def arguments(library: str) -> Mapping[str, str]:
    """The class of each value, field and type that is placed."""
    placed: Mapping[str, str] = load("census").arguments(TABLE, library)
    return placed


def values(name: str) -> dict[str, str]:
    """The members of a type in any version, with their numbers."""
    facts = {fact for header in known("cuda").values() for fact in header.members.get(name, ())}
    return dict(fact.split("=") for fact in facts)


@libraries
def test_nothing_that_a_header_declares_is_unknown(library: str) -> None:
    found = known(library)

    assert list(found) == VERSIONS[library]
    unknown = {
        version: headers.unknown(header, functions(library), arguments(library))
        for version, header in found.items()
    }
    assert {version: names for version, names in unknown.items() if names} == {}


@libraries
def test_no_value_field_or_type_is_placed_that_no_header_has(library: str) -> None:
    declared = {name for one in known(library).values() for name in one.names | one.types}

    assert set(arguments(library)) - declared == set()


MADE_UP = """
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define PTSZ(api) api ## _ptsz
#else
#define PTSZ(api) api
#endif
#define cuMemAlloc cuMemAlloc_v2
#define cuMemSteal cuMemSteal_v3
#define cuMemStealAsync PTSZ(cuMemStealAsync)
#define CUDA_VERSION 14000
#define CUDA_ARRAY3D_SPARSE 0x40
#define CUDA_ARRAY3D_STOLEN 0x200
#define CUDAAPI
typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_STOLEN = 1000 } CUresult;
typedef enum CUmemLocationType_enum {
    CU_MEM_LOCATION_TYPE_INVALID = 0x0,
    CU_MEM_LOCATION_TYPE_DEVICE, /* 1 */
    CU_MEM_LOCATION_TYPE_ELSEWHERE = 1 << 5,
} CUmemLocationType;
typedef struct CUmemLocation_st {
    CUmemLocationType type;
    union {
        int id;
        struct { unsigned char deviceId, shelf; } localized;
    };
} CUmemLocation_v1;
typedef CUmemLocation_v1 CUmemLocation;
typedef struct CUtheft_st {
    CUmemLocation from[2];
    void (*told)(int);
    struct { short count, kind; } loot[3];
} CUtheft;
typedef void (*CUhostFn)(void *);
CUresult CUDAAPI cuMemAlloc(unsigned long long *address, unsigned long bytes);
CUresult CUDAAPI cuMemSteal(CUtheft *theft, void (*told)(int));
CUresult CUDAAPI cuMemStealAsync(CUtheft *theft);
static inline CUresult cuInline(void) { return CUDA_SUCCESS; }
#ifdef __CUDA_API_VERSION_INTERNAL
#undef cuMemSteal
CUresult CUDAAPI cuMemSteal(CUtheft *theft);
#endif
"""


def made_up(folder: Path) -> Any:
    header = folder / "cuda.h"
    header.write_text(MADE_UP)
    return headers.read("cuda", header, arguments("cuda"))


def test_of_a_new_header_all_that_is_new_is_unknown(tmp_path: Path) -> None:
    new = headers.unknown(made_up(tmp_path), functions("cuda"), arguments("cuda"))

    assert new == [
        "CUDA_ARRAY3D_STOLEN",
        "CU_MEM_LOCATION_TYPE_ELSEWHERE",
        "CUmemLocation.localized.shelf",
        "CUtheft.from",
        "CUtheft.loot",
        "CUtheft.loot[0].count",
        "CUtheft.loot[0].kind",
        "CUtheft.told",
        "cuMemSteal",
        "cuMemStealAsync",
        "cuMemStealAsync_ptsz",
        "cuMemSteal_v3",
    ]


def test_a_header_is_read_with_its_macros_values_and_places(tmp_path: Path) -> None:
    read = made_up(tmp_path)

    assert "cuMemAlloc_v2" in read.functions
    assert "cuInline" not in read.functions
    assert read.types == {"cudaError"}
    assert read.members["CUmemLocationType"] == {
        "CU_MEM_LOCATION_TYPE_INVALID=0",
        "CU_MEM_LOCATION_TYPE_DEVICE=1",
        "CU_MEM_LOCATION_TYPE_ELSEWHERE=32",
    }
    assert read.members["CUmemLocation"] == {
        "type=0:4",
        "id=4:4",
        "localized=4:2",
        "localized.deviceId=4:1",
        "localized.shelf=5:1",
    }
    assert read.members["CUtheft"] == {
        "from=0:16",
        "told=16:8",
        "loot=24:12",
        "loot[0].count=24:2",
        "loot[0].kind=26:2",
    }
    assert read.members["constants"] == {"CUDA_ARRAY3D_SPARSE=64", "CUDA_ARRAY3D_STOLEN=512"}


def test_what_was_written_of_headers_is_read_back(tmp_path: Path) -> None:
    old = headers.Header(
        frozenset({"cuA", "cuA_v2", "cuA_v2_ptsz", "cuGone"}), frozenset({"CUgone"}), {}
    )
    new = headers.Header(
        frozenset({"cuA", "cuA_v2", "cuA_v2_ptsz", "cuNew"}),
        frozenset({"CUother"}),
        {"CUx": frozenset({"CU_X=1"}), "CUy": frozenset({"_y=0:4", "z=4:4"})},
    )
    versions = {"1.0": old, "1.1": new, "1.2": new, "1.3": old}

    (tmp_path / "cuda.headers").write_text(headers.write(versions))

    assert headers.parse(tmp_path / "cuda.headers", load("census").expand) == versions


@pytest.mark.parametrize(("library", "least"), [("cuda", 100), ("nvml", 40)])
def test_the_shims_own_fields_are_where_the_headers_have_them(library: str, least: int) -> None:
    declarations = INCLUDE / f"{library}_types.h"
    structs = list(headers.types(headers.preprocessed(declarations)))
    ours = {
        f"{OLDER.get(name, name)}.{fact.split('=')[0]}": {fact}
        for name, fact in headers.numbered(declarations, structs)
    }
    theirs: dict[str, set[str]] = {}
    for header in known(library).values():
        for name, of in header.members.items():
            for fact in of:
                theirs.setdefault(f"{name}.{fact.split('=')[0]}", set()).add(fact)

    declared = {name for name, why in arguments(library).items() if why == "declared"}
    assert len(declared) > least
    assert {name: ours.get(name) for name in declared} == {name: theirs[name] for name in declared}


def test_the_shims_own_values_are_those_of_the_headers() -> None:
    text = (INCLUDE / "cuda_types.h").read_text()
    names = tuple(dict.fromkeys(re.findall(r"\b(CU(?:DA)?_\w+) = ", text)))
    ours = dict(
        fact.split("=")
        for _, fact in headers.numbered(
            INCLUDE / "cuda_types.h", [headers.Type("values", "", names)]
        )
    )
    theirs = {
        name: number
        for one in known("cuda")["13.5"].members
        for name, number in values(one).items()
    }

    compared = {name: number for name, number in ours.items() if name in theirs}
    assert len(compared) > 30
    assert compared == {name: theirs[name] for name in compared}


@pytest.mark.parametrize(
    ("why", "payers"),
    [
        ("charged", {lib.PAYER_DEVICE, lib.PAYER_CURRENT}),
        ("host", {lib.PAYER_NOBODY}),
        ("refused", {lib.PAYER_NOBODY, lib.PAYER_CURRENT}),
    ],
)
def test_each_location_is_charged_as_the_table_says(why: str, payers: set[int]) -> None:
    pinned = int(values("CUmemAllocationType")["CU_MEM_ALLOCATION_TYPE_PINNED"])
    locations = values("CUmemLocationType")

    placed = [name for name in locations if arguments("cuda")[name] == why]
    assert placed
    assert {lib.location_of(pinned, int(locations[name]), 0).payer for name in placed} <= payers


def test_no_allocation_type_of_the_headers_is_unknown_to_the_shim() -> None:
    types = values("CUmemAllocationType")
    (device,) = (values("CUmemLocationType")["CU_MEM_LOCATION_TYPE_DEVICE"],)

    unknown = {
        name for name, at in types.items() if lib.location_of(int(at), int(device), 0).unknown
    }
    assert unknown == {"CU_MEM_ALLOCATION_TYPE_MAX"}


def test_the_page_of_the_census_is_written_from_the_tables() -> None:
    made = load("document").census_document(load("generate"), load("census"), headers)

    assert (ROOT / "docs" / "census.md").read_text() == made, (
        "run `python native/table/document.py`"
    )


@pytest.mark.skipif(not FETCHED.exists(), reason="no headers: make headers")
@libraries
def test_what_is_committed_is_what_the_headers_declare(library: str) -> None:
    assert headers.read_all(library, FETCHED, arguments(library)) == known(library)
