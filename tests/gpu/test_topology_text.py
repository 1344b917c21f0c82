"""The text of `nvidia-smi topo -m`, as drivers print it and as people cut it."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.errors import InputError
from gpumanager.gpu.topology_text import LONGEST_TEXT, parse_topology, read_topology
from gpumanager.gpu.values import Level, Topology
from gpumanager.units import GIB, Bytes
from tests import ROOT

TEXTS = Path(__file__).parent / "topologies"
EXAMPLES = sorted((ROOT / "examples" / "topology").glob("*.txt"))
MEMORY = Bytes(16 * GIB)

PAIR = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPIX\t0-15\t0\t\tN/A
GPU1\tPIX\t X \t0-15\t0\t\tN/A
"""


def parse(text: str) -> Topology:
    return parse_topology(text, MEMORY, "topo.txt")


def load(name: str) -> Topology:
    return read_topology(TEXTS / f"{name}.txt", MEMORY)


def names(topology: Topology) -> list[str]:
    """Each row of the table without the diagonal."""
    return [" ".join(str(bond) for bond in row if bond is not None) for row in topology.bonds]


def nodes(topology: Topology) -> list[int | None]:
    return [gpu.numa_node for gpu in topology.gpus]


GOLDEN = {
    "dgx-a100": ([" ".join(["NV12"] * 7)] * 8, [3, 3, 1, 1, 7, 7, 5, 5]),
    "t4x4": (["PHB NODE SYS", "PHB NODE SYS", "NODE NODE SYS", "SYS SYS SYS"], [0, 0, 0, 1]),
    "two-socket-pcie-8": (
        ["PIX PXB PXB SYS SYS SYS SYS"] * 2
        + ["PXB PXB PIX SYS SYS SYS SYS"] * 2
        + ["SYS SYS SYS SYS PIX PXB PXB"] * 2
        + ["SYS SYS SYS SYS PXB PXB PIX"] * 2,
        [0, 0, 0, 0, 1, 1, 1, 1],
    ),
    "single": ([""], [None]),
    "virtual-machine": (["PHB", "PHB"], [None, None]),
    "six-soc": (
        ["PIX PHB PHB SYS SYS"] * 2 + ["PHB PHB PIX SYS SYS"] * 2 + ["SYS SYS SYS SYS PIX"] * 2,
        [None] * 6,
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_text_as_drivers_print_it_is_read_with_spaces_for_tabs_too(name: str) -> None:
    bonds, numa = GOLDEN[name]

    topology = load(name)

    assert names(topology) == bonds
    assert nodes(topology) == numa
    assert parse((TEXTS / f"{name}.txt").read_text().expandtabs(16)) == topology


def test_what_the_text_does_not_say_is_filled_in_the_same_way_every_time() -> None:
    topology = parse(PAIR)

    assert [gpu.index for gpu in topology.gpus] == [0, 1]
    assert [gpu.minor for gpu in topology.gpus] == [0, 1]
    assert [gpu.memory for gpu in topology.gpus] == [MEMORY, MEMORY]
    assert all(gpu.uuid.startswith("GPU-") and len(gpu.uuid) == 40 for gpu in topology.gpus)
    assert len({gpu.uuid for gpu in topology.gpus} | {gpu.bus_id for gpu in topology.gpus}) == 4
    assert parse(PAIR) == topology


def test_nvlink_hides_the_pcie_level_so_the_loosest_possible_is_taken() -> None:
    topology = load("dgx-a100")

    assert topology.bond(0, 1).level is Level.NODE
    assert topology.bond(0, 2).level is Level.SYS
    assert topology.bond(0, 2).quality == 1200


def test_several_numa_nodes_mean_that_none_is_known() -> None:
    assert nodes(parse(PAIR.replace("\t0\t", "\t0-1\t"))) == [None, None]


SETS = """\
\tGPU0\tGPU1\tGPU2\tCPU Affinity
GPU0\t X \tNV1\tSYS\t{}
GPU1\tNV1\t X \tNV1\t{}
GPU2\tSYS\tNV1\t X \t{}
"""
"""As a driver without the column of NUMA nodes prints it."""


@pytest.mark.parametrize(
    ("processors", "numa"),
    [
        (("20-39,60-79", "20-39,60-79", "0-19,40-59"), [1, 1, 0]),
        (("0", "1", "2-3"), [0, 1, 2]),
        (("0-79", "0-79", "0-79"), [None, None, None]),  # a single node, or none is known
        (("0-19", "0-19", "10-29"), [None, None, None]),  # overlapping
        (("0-19", "0-19", "N/A"), [None, None, None]),
    ],
)
def test_without_a_numa_column_sets_of_processors_are_nodes(
    processors: tuple[str, ...], numa: list[int | None]
) -> None:
    topology = parse(SETS.format(*processors))

    assert nodes(topology) == numa
    together = numa[0] is not None and numa[0] == numa[1]
    assert topology.bond(0, 1).level is (Level.NODE if together else Level.SYS)


CONTRADICTIONS = {
    "asymmetric": (
        PAIR.replace("GPU1\tPIX", "GPU1\tPHB"),
        3,
        "GPU0 is PHB, but GPU0 to GPU1 is PI",
    ),
    "asymmetric nvlinks": (
        PAIR.replace("X \tPIX", "X \tNV2").replace("GPU1\tPIX", "GPU1\tNV4"),
        3,
        "GPU1 to GPU0 is NV4, but GPU0 to GPU1 is NV2",
    ),
    "X off the diagonal": (PAIR.replace("X \tPIX", "X \tX"), 2, "not X: GPU1 is another device"),
    "no X on the diagonal": (PAIR.replace("GPU0\t X ", "GPU0\tPIX"), 2, "expected X, itself"),
    "unknown bond": (PAIR.replace("PIX", "PIXEL"), 2, "GPU0 to GPU1 is 'PIXEL'"),
    "no NVLinks at all": (PAIR.replace("PIX", "NV0"), 2, "GPU0 to GPU1 is 'NV0'"),
    "second row": (PAIR + "GPU1\tPIX\t X \t0-15\t0\t\tN/A\n", 4, "a second row for GPU1"),
    "second table": (PAIR + "\nLegend:\n\n" + PAIR, 7, "a second table after the legend"),
    "foreign row": (PAIR + "NIC0\tPIX\tPIX\n", 4, "a row for 'NIC0'"),
    "missing row": (PAIR[: PAIR.index("GPU1\tPIX")], 1, "the header names GPU1"),
    "missing adapter row": ("GPU0 NIC0 CPU Affinity\nGPU0 X PIX 0-7\n", 1, "the header names NIC0"),
    "missing cells": (PAIR.replace("GPU1\tPIX\t X \t0-15\t0\t\tN/A", "GPU1\tPIX"), 3, "has 1 cell"),
    "missing affinity": (
        PAIR.replace("X \t0-15\t0\t\tN/A", "X \t0-15"),
        3,
        "cut short: 1 affinity",
    ),
    "too many cells": (PAIR.replace("\tN/A", "\tN/A\tPIX"), 2, "more cells than the header names"),
    "too many adapter cells": ("GPU0 NIC0\nGPU0 X PIX\nNIC0 PIX X PIX\n", 3, "more cells"),
    "cut header": (PAIR.replace(" NUMA ID", ""), 1, "the header is cut short at 'Affinity'"),
    "device twice": (PAIR.replace("GPU0\tGPU1", "GPU0\tGPU0"), 1, "in order"),
    "adapter twice": ("GPU0 NIC0 NIC0\nGPU0 X PIX PIX\n", 1, "names a device twice"),
    "gap in the GPUs": (PAIR.replace("GPU1", "GPU2"), 1, "in order"),
    "a line above that names GPUs": ("GPU1\tGPU2\n" + PAIR, 1, "not a header"),
    "no header": (PAIR[PAIR.index("GPU0\t X") :], 1, "not a header but the row"),
    "another command's output": ("GPU 0: Tesla T4 (UUID: GPU-1)\n", 1, "not a header"),
    "bad processors": (PAIR.replace("0-15", "all"), 2, "CPU affinity is 'all'"),
    "a range of three": (PAIR.replace("0-15", "0-7-9"), 2, "CPU affinity is '0-7-9'"),
    "bad NUMA node": (PAIR.replace("\t0\t", "\tzero\t"), 2, "NUMA affinity is 'zero'"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_text_that_contradicts_itself_is_refused_with_line_and_cause(case: str) -> None:
    text, line, cause = CONTRADICTIONS[case]

    with pytest.raises(InputError) as caught:
        parse(text)

    assert str(caught.value).startswith(f"topo.txt:{line}: ")
    assert cause in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n \t\n", "\x1b[4m\x1b[0m\n", "Legend:\n\n  X = Self\n"])
def test_an_empty_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"topo\.txt: empty"):
        parse(text)


def test_a_text_saved_on_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_bytes(PAIR.replace("\n", "\r\n").encode("utf-8-sig"))

    assert read_topology(path, MEMORY) == parse(PAIR)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "cannot be read: No such file"),
        ("a folder", "cannot be read: Is a directory"),
        (b"\xff\xfe\x00G", r"topo\.txt"),
        (b"\x7fELF\x02\x01\x01\x00\x00", r"topo\.txt"),
        (b"\x00" * 64, r"topo\.txt"),
    ],
)
def test_a_file_that_is_no_text_is_named(
    content: bytes | str | None, cause: str, tmp_path: Path
) -> None:
    path = tmp_path / "topo.txt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        path.mkdir()

    with pytest.raises(InputError, match=cause):
        read_topology(path, MEMORY)


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(InputError, match=f"longer than {LONGEST_TEXT} bytes"):
        read_topology("/dev/zero", MEMORY)


# --- properties ---

CELLS = st.sampled_from(["SYS", "NODE", "PHB", "PXB", "PIX", *(f"NV{n}" for n in range(1, 19))])


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[list[str]], list[int | None]]:
    """A text, its table of cells, its NUMA nodes."""
    size = draw(st.integers(1, 8))
    adapters = draw(st.integers(0, 3))
    names = [f"GPU{n}" for n in range(size)] + [f"NIC{n}" for n in range(adapters)]
    cells = [["X"] * len(names) for _ in names]
    for a in range(len(names)):
        for b in range(a):
            cells[a][b] = cells[b][a] = draw(CELLS)
    numa = draw(st.lists(st.none() | st.integers(0, 7), min_size=size, max_size=size))
    gap = draw(st.sampled_from(["\t", " ", "    "]))
    lines = [gap.join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for name, row in zip(names, cells, strict=True):
        node = numa[names.index(name)] if name.startswith("GPU") else None
        affinity = ["0-63", "N/A" if node is None else str(node), "N/A"]
        lines.append(gap.join([name, *row, *(affinity if name.startswith("GPU") else [])]))
        lines += [""] * draw(st.integers(0, 1))
    return "\n".join([*lines, "", "Legend:", "", "  X = Self"]), cells, numa


@given(tables())
def test_a_rendered_topology_is_read_back(
    table: tuple[str, list[list[str]], list[int | None]],
) -> None:
    text, cells, numa = table
    size = len(numa)

    topology = parse(text)

    expected = [" ".join(c for c in row[:size] if c != "X") for row in cells[:size]]
    assert names(topology) == expected
    assert nodes(topology) == numa


def read_or_refuse(content: bytes) -> None:
    """Anything but InputError fails the test."""
    with contextlib.suppress(InputError):
        parse(content.decode(errors="replace"))


@pytest.mark.parametrize("name", ["t4x4", "six-soc"])
def test_no_truncation_gives_another_topology(name: str) -> None:
    text = (TEXTS / f"{name}.txt").read_text()
    whole = load(name)
    body = text.split("Legend:")[0].rstrip()

    for end in range(len(body) - len("\t\tN/A")):
        with contextlib.suppress(InputError):
            short = parse(body[:end])
            assert (names(short), len(short.gpus)) == (names(whole), len(whole.gpus))


@given(st.sampled_from(sorted(GOLDEN)), st.data())
def test_a_text_with_a_changed_character_is_read_or_refused(name: str, data: st.DataObject) -> None:
    content = bytearray((TEXTS / f"{name}.txt").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))

    read_or_refuse(bytes(content))


@pytest.mark.parametrize(
    "above", ["$ nvidia-smi topo -m\n", "root@node-1:~# nvidia-smi topo -m\n\nMon Nov 23 2026\n"]
)
def test_what_stands_above_the_table_is_skipped(above: str) -> None:
    assert parse(above + PAIR) == parse(PAIR)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_topologies_are_read(path: Path) -> None:
    assert read_topology(path, MEMORY) == load(path.stem)
