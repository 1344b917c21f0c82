"""Labels of the node, and the inventory of its GPUs."""

import json
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.inventory import inventory, read_inventory
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.names import ANNOTATION_INVENTORY, LABEL_MODEL
from gpumanager.node_status.labels import (
    MIXED,
    Software,
    label_value,
    node_labels,
    original_model,
    parse_node_labels,
)
from gpumanager.units import GIB, MIB, Bytes
from tests.node_status.grants import gpu, two_gpus

NAMES = st.text("abcXYZ019 -._/()+", max_size=80)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    size = draw(st.integers(0, 5))
    bonds: list[list[Bond | None]] = [[None] * size for _ in range(size)]
    for a, b in combinations(range(size), 2):
        bond = Bond(draw(st.sampled_from(Level)), draw(st.integers(0, 18)))
        bonds[a][b] = bonds[b][a] = bond
    gpus = [
        Gpu(
            index,
            draw(st.integers(0, 31)),
            GpuUUID(f"GPU-{index}"),
            "0000:00:00.0",
            draw(NAMES),
            Bytes(draw(st.integers(0, 1 << 40))),
            draw(st.none() | st.integers(0, 7)),
        )
        for index in range(size)
    ]
    return topology(gpus, bonds)


@given(node=topologies(), harmed=st.sets(st.sampled_from(["GPU-0", "GPU-1"])))
def test_an_inventory_is_read_as_it_was_written(node: Topology, harmed: set[str]) -> None:
    unhealthy = frozenset(GpuUUID(uuid) for uuid in harmed)

    assert read_inventory(inventory(node, unhealthy)[ANNOTATION_INVENTORY]) == (node, unhealthy)


def test_the_inventory_of_a_large_node_is_small() -> None:
    gpus = [gpu(index, "NVIDIA H200", 141 * GIB) for index in range(16)]
    bonds = [[None if a == b else Bond(Level.NODE, 18) for b in range(16)] for a in range(16)]

    text = inventory(topology(gpus, bonds))[ANNOTATION_INVENTORY]

    assert len(text) < 4096


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"version": 2, "gpus": [], "bonds": [], "unhealthy": []}',
        '{"version": 1, "gpus": [1], "bonds": [[]], "unhealthy": []}',
        '{"version": 1, "gpus": [], "bonds": [["PIX"]], "unhealthy": []}',
        '{"version": 1, "gpus": {}, "bonds": {}, "unhealthy": 3}',
        "[" * 100_000,
    ],
)
def test_what_is_no_inventory_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of the json module, or ours
        read_inventory(text)


@pytest.mark.parametrize(
    ("found", "written"),
    [
        ('"memory":17179869184', '"memory":1e999'),
        ('"memory":17179869184', '"memory":-17179869184'),
        ('"memory":17179869184', f'"memory":1{"0" * 400}'),
        ('"memory":17179869184', '"memory":true'),
        ('"minor":4', '"minor":-4'),
        ('"numa":0', '"numa":1e999'),
        ('"PHB"', '"PHB+-3"'),
        ('"PHB"', f'"PHB+{"9" * 400}"'),
        ('"GPU-00000001', '"GPU-00000000'),
        ('"uuid":"GPU-', '"uuid":null,"was":"GPU-'),
        ('"unhealthy":[]', '"unhealthy":"GPU-1"'),
    ],
)
def test_an_inventory_that_cannot_be_true_is_none(found: str, written: str) -> None:
    cards = [replace(gpu(index, "T4", 16 * GIB), numa_node=0) for index in range(2)]
    bond = Bond(Level.PHB)
    text = inventory(topology(cards, [[None, bond], [bond, None]]))[ANNOTATION_INVENTORY]
    assert found in text

    with pytest.raises(ValueError, match="inventory"):
        read_inventory(text.replace(found, written))


def test_a_node_of_more_gpus_than_any_machine_has_is_none() -> None:
    cards = [gpu(index, "T4", 16 * GIB) for index in range(65)]
    bonds = [[None if a == b else Bond(Level.SYS) for b in range(65)] for a in range(65)]

    with pytest.raises(ValueError, match="65 GPUs"):
        read_inventory(inventory(topology(cards, bonds))[ANNOTATION_INVENTORY])


def test_a_bond_that_nobody_knows_is_no_inventory() -> None:
    text = inventory(two_gpus())[ANNOTATION_INVENTORY].replace("PHB", "WARP")

    with pytest.raises(ValueError, match="WARP"):
        read_inventory(text)


def test_labels_say_what_holds_for_every_gpu_of_the_node() -> None:
    gpus = (gpu(0, "NVIDIA A100", 40 * GIB), gpu(1, "NVIDIA A100 80GB PCIe", 80 * GIB))

    labels = node_labels(gpus, Software("555.58.02", "12.5"), {})

    assert labels == {
        "tencent.com/gpu-count": "2",
        "tencent.com/gpu-product": MIXED,
        "tencent.com/gpu-memory": str(40 * GIB // MIB),
        "tencent.com/gpu-driver-version": "555.58.02",
        "tencent.com/gpu-cuda-version": "12.5",
    }


def test_a_node_whose_gpus_are_gone_says_so() -> None:
    assert node_labels((), Software(), {LABEL_MODEL: ""}) == {
        "tencent.com/gpu-count": "0",
        LABEL_MODEL: "",
    }


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("Tesla M40 24GB", "M40"),  # as the original
        ("Tesla V100-SXM2-16GB", "Tesla-V100-SXM2-16GB"),  # the original had no label
        ("NVIDIA GeForce RTX 3090", "NVIDIA-GeForce-RTX-3090"),  # the original said GeForce
        ("NVIDIA A100 80GB PCIe", "A100"),
    ],
)
def test_the_original_s_model_label_is_kept_where_it_named_a_model(
    product: str, model: str
) -> None:
    labels = node_labels((gpu(0, product),), Software(), {LABEL_MODEL: "any"})

    assert labels[LABEL_MODEL] == original_model(product) == model


@given(NAMES)
def test_whatever_a_product_is_called_its_label_can_be_written(name: str) -> None:
    value = label_value(name)

    assert parse_node_labels(f"k={value}") == {"k": value}


def test_node_labels_are_read_as_the_flag_has_them(caplog: pytest.LogCaptureFixture) -> None:
    text = "a=1, gaia.tencent.com/gpu-model=,b = 2 ,,wrong,=3,x y=1,c=-,d=" + "x" * 64

    assert parse_node_labels(text) == {"a": "1", "gaia.tencent.com/gpu-model": "", "b": "2"}
    assert caplog.text.count("ignoring") == 5


@pytest.mark.parametrize("key", ["a..b/c", "a.-b/c", "a-.b/c", "UP.io/c", "p" * 254 + "/c", "a/"])
def test_a_key_that_kubernetes_refuses_does_not_cost_the_node_its_other_labels(key: str) -> None:
    assert parse_node_labels(f"{key}=1,ok.io/a_b.c=2") == {"ok.io/a_b.c": "2"}


def test_the_annotation_is_on_one_line() -> None:
    text = inventory(two_gpus())[ANNOTATION_INVENTORY]

    assert text == json.dumps(json.loads(text), separators=(",", ":"))
