"""What the simulated libraries export, and what they answer before a device is there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from gpumanager.sim.gpu import driver_files
from tests import ROOT
from tests.native.sim_box import SimBox, machine, sim_box

TABLE = ROOT / "native/sim/table"
CUDA, NVML = driver_files(12050)
CUDA_13, NVML_13 = driver_files(13040)

FACTS = [
    # asked in the real 555.58.02: name, version, flags, the export it answered with
    ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
    ("cuMemAlloc", 3019, 0, "cuMemAlloc"),
    ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 99000, 0, "cuMemAlloc_v2"),
    ("cuCtxCreate", 2000, 1, "cuCtxCreate"),
    ("cuCtxCreate", 3020, 1, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, 1, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, 1, "cuCtxCreate_v4"),
    ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ("cuLaunchKernel", 4000, 0, "cuLaunchKernel"),
    ("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"),
    ("cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"),
    ("cuStreamSynchronize", 7000, 3, "cuStreamSynchronize_ptsz"),
]

ASK = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
answers = []
for name, version, flags in json.loads(sys.argv[1]):
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = cuda.cuGetProcAddress_v2(
        name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), ctypes.byref(status))
    old = ctypes.c_void_p()
    old_code = cuda.cuGetProcAddress(
        name.encode(), ctypes.byref(old), version, ctypes.c_uint64(flags))
    assert old.value == found.value
    answers.append([code, found.value, status.value, old_code])
names = json.loads(sys.argv[2])
addresses = {name: ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value for name in names}
print(json.dumps([answers, addresses]))
"""


@pytest.fixture(scope="module")
def box() -> Iterator[SimBox]:
    with sim_box(machine(cuda_version=13040)) as made:
        yield made


def rows(name: str) -> list[list[str]]:
    lines = (TABLE / name).read_text().splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def exported(path: Path) -> set[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}


def dynamic_tags(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags()
        return {tag.entry.d_tag: getattr(tag, "soname", tag.entry.d_val) for tag in tags}


def ask(
    box: SimBox, questions: list[tuple[str, int, int]], names: list[str]
) -> tuple[list[list[int | None]], dict[str, int]]:
    words = [sys.executable, "-c", ASK, json.dumps(questions), json.dumps(names)]
    answers, addresses = json.loads(box.succeed(words))
    return answers, addresses


def test_exactly_the_names_of_the_tables_are_exported() -> None:
    assert exported(CUDA_13) == {row[0] for row in rows("cuda.txt")}
    assert exported(NVML_13) == {row[0] for row in rows("nvml.txt")}


def test_the_older_release_lacks_what_newer_versions_of_cuda_added() -> None:
    added = {
        row[0]
        for row in rows("cuda.txt")
        if row[1] != "data" and any(int(since) > 12050 for since in row[2:] if since != "-")
    }

    assert exported(CUDA_13) - exported(CUDA) == added
    assert {"cuEventElapsedTime_v2", "cuMemGetDefaultMemPool", "cuMemcpyBatchAsync_v2_ptsz"} < added
    assert exported(NVML) == exported(NVML_13)


def test_no_two_functions_of_libcuda_share_an_address() -> None:
    with CUDA.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        places = [symbol["st_value"] for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"]

    assert len(places) == len(set(places))


def test_libcuda_binds_to_itself_and_nvml_does_not_as_the_real_ones() -> None:
    assert dynamic_tags(CUDA)["DT_SONAME"] == "libcuda.so.1"
    assert "DT_SYMBOLIC" in dynamic_tags(CUDA)
    assert dynamic_tags(NVML)["DT_SONAME"] == "libnvidia-ml.so.1"
    assert "DT_SYMBOLIC" not in dynamic_tags(NVML)
    assert not {"DT_VERDEF", "DT_VERDEFNUM"} & {*dynamic_tags(CUDA), *dynamic_tags(NVML)}


def test_nvml_calls_some_of_its_own_exports_by_name() -> None:
    with NVML.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        slots = elf.get_section_by_name(".rela.plt").iter_relocations()
        called = {symbols.get_symbol(slot["r_info_sym"]).name for slot in slots}

    assert {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2"} <= called


def test_entry_points_are_those_the_real_driver_answered_with(box: SimBox) -> None:
    questions = [(name, version, flags) for name, version, flags, _ in FACTS]

    answers, addresses = ask(box, questions, [fact[3] for fact in FACTS])

    assert answers == [[0, addresses[fact[3]], 0, 0] for fact in FACTS]


def test_every_row_of_the_table_is_found_at_its_version_and_not_before(box: SimBox) -> None:
    reachable = [row for row in rows("cuda.txt") if row[1] not in ("-", "data")]
    starts = [
        (symbol, base, int(since), flags)
        for symbol, base, plain, per_thread in reachable
        for flags, since in ((0, plain), (2, per_thread))
        if since != "-"
    ]
    first = {(base, flags): 10**6 for _, base, _, flags in starts}
    for _, base, since, flags in starts:
        first[base, flags] = min(first[base, flags], since)
    early = [(base, since - 1, flags) for (base, flags), since in first.items()]

    answers, addresses = ask(
        box,
        [(base, since, flags) for _, base, since, flags in starts] + early,
        [row[0] for row in reachable],
    )

    found, missing = answers[: len(starts)], answers[len(starts) :]
    assert [answer[:3] for answer in found] == [[0, addresses[row[0]], 0] for row in starts]
    assert missing == [[0, None, 2, 500]] * len(early)


def test_a_driver_of_cuda_12_has_no_entry_points_of_cuda_13() -> None:
    with sim_box() as older:
        answers, addresses = ask(older, [("cuCtxSynchronize", 13000, 0)], ["cuCtxSynchronize"])

    assert answers == [[0, addresses["cuCtxSynchronize"], 0, 0]]


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("cuNoSuchFunction", 12000, 1),
        ("", 0, 1),
        ("cuMemAlloc_v2", 12000, 1),
        ("cuLaunchKernel_ptsz", 12000, 1),
        ("cuMemAllocAsync", 11010, 2),
    ],
)
def test_what_is_not_found_is_null_with_a_status_or_500_in_the_old_form(
    box: SimBox, name: str, version: int, status: int
) -> None:
    assert ask(box, [(name, version, 0)], [])[0] == [[0, None, status, 500]]


def test_unknown_flags_are_invalid(box: SimBox) -> None:
    code, found, _, old_code = ask(box, [("cuInit", 12000, 0x100)], [])[0][0]

    assert (code, found, old_code) == (1, None, 1)


def test_only_cu_init_makes_the_driver_work(box: SimBox) -> None:
    client = box.client()

    before = client("[cuda.cuDeviceGetCount(None), alloc(4096), cuda.cuCtxSynchronize()]")

    assert before == [3, 3, 3]
    codes = client("[cuda.cuInit(1), cuda.cuInit(0), alloc(4096), init(), alloc(4096)]")
    assert codes == [1, 0, 201, 0, 0]


def test_export_tables_are_refused_with_null(box: SimBox) -> None:
    client = box.client()

    answer = client(
        "(lambda t: [cuda.cuGetExportTable(ctypes.byref(t), b'0' * 16), t.value])"
        "(ctypes.c_void_p(7))"
    )

    assert answer == [1, None]


def test_what_is_not_simulated_says_so_and_its_own_function_works(box: SimBox) -> None:
    client = box.client()

    assert client("[init(), cuda.cuTexRefCreate(), cuda.cuDeviceGetLuid()]") == [0, 801, 801]
    assert client(
        "(lambda v: [cuda.cuSimulatorOnlyFunction(ctypes.byref(v)), v.value])(ctypes.c_int(20))"
    ) == [0, 41]


def test_without_the_control_node_there_is_no_driver(box: SimBox, tmp_path: Path) -> None:
    client = box.client(GPUSIM_DEV=str(tmp_path))

    assert client("cuda.cuInit(0)") == 100
    assert client("ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2()") == 9


def test_a_control_node_that_is_not_ours_counts_as_none(box: SimBox, tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").write_bytes(b"x" * 4096)

    assert box.client(GPUSIM_DEV=str(tmp_path))("cuda.cuInit(0)") == 100


def test_the_libraries_load_without_any_environment() -> None:
    script = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(CUDA)!r}).cuInit(1))"

    assert subprocess.run([sys.executable, "-c", script], env={}, check=False).returncode == 1
