"""The tree for people."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.topology_text import read_topology
from gpumanager.gpu.tree import groups, render_tree
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import GIB, Bytes

TEXTS = Path(__file__).parent / "topologies"


def load(name: str) -> Topology:
    return read_topology(TEXTS / f"{name}.txt", Bytes(16 * GIB))


def test_levels_that_separate_nobody_are_left_out() -> None:
    assert render_tree(load("t4x4")).splitlines() == [
        "machine",
        "├── NUMA node (NODE)",
        "│   ├── host bridge (PHB)",
        "│   │   ├── GPU0  GPU  16 GiB  00000000:01:00.0  NUMA 0",
        "│   │   └── GPU1  GPU  16 GiB  00000000:02:00.0  NUMA 0",
        "│   └── GPU2  GPU  16 GiB  00000000:03:00.0  NUMA 0",
        "└── GPU3  GPU  16 GiB  00000000:04:00.0  NUMA 1",
    ]


def test_nvlinks_alike_are_said_once() -> None:
    tree = render_tree(load("dgx-a100")).splitlines()

    assert tree[-1] == "NVLink: NV12 between every pair"
    assert sum("NUMA node (NODE)" in line for line in tree) == 4


def test_nvlinks_that_differ_are_listed() -> None:
    gpus = [Gpu(i, i, GpuUUID(f"GPU-{i}"), f"{i}", "V100", Bytes(GIB)) for i in range(3)]
    near, far = Bond(Level.BOARD, 2), Bond(Level.SYS)
    tree = render_tree(topology(gpus, [[None, near, far], [near, None, far], [far, far, None]]))

    assert tree.splitlines()[-2:] == ["NVLink:", "    GPU0 - GPU1  NV2"]
    assert "├── board" in tree


def test_a_single_gpu_hangs_off_the_machine() -> None:
    assert render_tree(load("single")) == "machine\n└── GPU0  GPU  16 GiB  00000000:01:00.0"


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    size = draw(st.integers(0, 7))
    gpus = [Gpu(i, i, GpuUUID(f"GPU-{i}"), f"{i}", "V100", Bytes(GIB)) for i in range(size)]
    bonds: list[list[Bond | None]] = [[None] * size for _ in gpus]
    for a in range(size):
        for b in range(a):
            bonds[a][b] = bonds[b][a] = Bond(draw(st.sampled_from(Level)))
    return topology(gpus, bonds)


@given(topologies(), st.sampled_from(Level))
def test_every_gpu_is_in_the_tree_once_and_groups_part_the_machine(
    machine: Topology, level: Level
) -> None:
    everyone = tuple(range(len(machine.gpus)))
    parts = groups(machine, everyone, level)

    assert sorted(member for part in parts for member in part) == list(everyone)
    for gpu in machine.gpus:
        assert render_tree(machine).count(f"── GPU{gpu.index} ") == 1
