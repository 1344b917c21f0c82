"""The node's ResourceSlice, and the order in which GPUs are offered."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpumanager.dra.slice import NodeGpus, quantity, resource_slice, semantic
from gpumanager.gpu.device_attributes import DeviceAttributes
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.kube.claims import device_name
from gpumanager.placement.values import FreeGpu, FreeGpus
from gpumanager.placement.whole import offer_order
from gpumanager.units import GIB, MIB, Bytes

BLOCKS = 64


def machine(pairs: dict[tuple[int, int], int], count: int = 8) -> Topology:
    """GPUs of 16 GiB, four on each NUMA node; pairs: those with so many NVLinks."""
    cards = [
        Gpu(i, i, GpuUUID(f"GPU-{i}"), f"0000:{i:02x}:00.0", "Tesla V100", Bytes(16 * GIB), i // 4)
        for i in range(count)
    ]
    bonds = [
        [
            None
            if a == b
            else Bond(
                Level.PIX if a // 4 == b // 4 else Level.SYS,
                pairs.get((a, b), pairs.get((b, a), 0)),
            )
            for b in range(count)
        ]
        for a in range(count)
    ]
    return topology(cards, bonds)


def free(node: Topology, **held: tuple[int, int]) -> FreeGpus:
    """held: cores and blocks, by `gpu<index>`."""
    books = FreeGpus.of_idle(node)
    for name, (cores, memory) in held.items():
        left = FreeGpu(100 - cores, BLOCKS - memory, 1, BLOCKS)
        books = FreeGpus({**books.gpus, GpuUUID(f"GPU-{name[3:]}"): left})
    return books


def order(node: Topology, books: FreeGpus) -> list[int]:
    return [gpu.index for gpu in offer_order(node, books)]


NO_LINKS = machine({})
PAIRS = machine({(0, 1): 2, (2, 3): 1, (4, 5): 2})


def test_gpus_in_use_come_first_and_the_fullest_before_the_others() -> None:
    books = free(NO_LINKS, gpu2=(30, 8), gpu5=(70, 8), gpu6=(30, 16), gpu7=(100, 64))

    assert order(NO_LINKS, books)[:3] == [5, 6, 2]
    assert order(NO_LINKS, books)[-1] == 7


def test_free_gpus_come_with_the_loosest_bonds_first() -> None:
    """6 and 7 have no NVLink, then the loosest pair is broken, and its other half is an orphan."""
    assert order(PAIRS, free(PAIRS)) == [6, 7, 2, 3, 0, 1, 4, 5]


def test_the_other_half_of_a_pair_in_use_is_the_first_of_the_free_ones() -> None:
    assert order(PAIRS, free(PAIRS, gpu0=(30, 8)))[:4] == [0, 1, 6, 7]


@pytest.mark.parametrize("held", [{}, {"gpu1": (100, 64)}, {f"gpu{i}": (99, 1) for i in range(8)}])
def test_every_gpu_is_offered_once(held: dict[str, tuple[int, int]]) -> None:
    assert sorted(order(PAIRS, free(PAIRS, **held))) == list(range(8))


def slice_of(gpus: NodeGpus) -> Any:
    return resource_slice("n1", "uid-n1", gpus)


def test_a_slice_is_the_nodes_one_pool() -> None:
    found = slice_of(NodeGpus(NO_LINKS, free(NO_LINKS)))

    assert found["metadata"]["name"] == "n1-gpu.tencent.com"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
    spec = found["spec"]
    assert (spec["driver"], spec["nodeName"]) == ("gpu.tencent.com", "n1")
    assert spec["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    assert len(spec["devices"]) == 8
    assert len(json.dumps(found)) < 10_000


def test_a_gpu_is_a_device_that_can_be_shared() -> None:
    gpus = NodeGpus(
        PAIRS,
        free(PAIRS, gpu5=(30, 8)),
        driver="555.58.02",
        known=DeviceAttributes(
            "12.5", {GpuUUID("GPU-5"): "Volta"}, {GpuUUID("GPU-5"): "pci0000:80"}
        ),
    )

    device = slice_of(gpus)["spec"]["devices"][0]

    assert device == {
        "name": device_name(GpuUUID("GPU-5")),
        "allowMultipleAllocations": True,
        "attributes": {
            "uuid": {"string": "GPU-5"},
            "productName": {"string": "Tesla V100"},
            "architecture": {"string": "Volta"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:80"},
            "driverVersion": {"version": "555.58.2"},
            "cudaVersion": {"version": "12.5.0"},
            "numa": {"int": 1},
            "nvlink": {"int": 4},
            "freeCores": {"int": 70},
            "freeMemory": {"int": 56 * 256},
        },
        "capacity": {
            "cores": {
                "value": "100",
                "requestPolicy": {
                    "default": "100",
                    "validRange": {"min": "1", "step": "1", "max": "100"},
                },
            },
            "memory": {
                "value": "16Gi",
                "requestPolicy": {
                    "default": "16Gi",
                    "validRange": {"min": "256Mi", "step": "256Mi", "max": "16Gi"},
                },
            },
        },
    }


def test_a_long_product_name_keeps_no_gpu_from_being_offered() -> None:
    """One attribute of more than 64 bytes, and the API server refuses the slice."""
    model = "NVIDIA GeForce RTX 9090 Super Founders' Edition with a very long name™"
    named = replace(NO_LINKS, gpus=tuple(replace(gpu, model=model) for gpu in NO_LINKS.gpus))

    found = slice_of(NodeGpus(named, free(named)))

    name = found["spec"]["devices"][0]["attributes"]["productName"]["string"]
    assert len(name.encode()) <= 64
    assert model.startswith(name)


def test_what_is_not_known_is_not_told() -> None:
    node = machine({}, 1)
    node = topology([replace(node.gpus[0], numa_node=None)], [[None]])

    (device,) = slice_of(NodeGpus(node, free(node)))["spec"]["devices"]

    assert set(device["attributes"]) == {"uuid", "productName", "freeCores", "freeMemory"}
    assert "taints" not in device


UNHEALTHY = {"key": "gpu.tencent.com/unhealthy", "value": "true", "effect": "NoSchedule"}
CORDONED = UNHEALTHY | {"key": "gpu.tencent.com/cordoned"}
EVICTING = UNHEALTHY | {"effect": "NoExecute"}
THIRD = frozenset({GpuUUID("GPU-3")})


@pytest.mark.parametrize(
    ("of", "taints"),
    [
        pytest.param({"unhealthy": THIRD}, [UNHEALTHY], id="unhealthy"),
        pytest.param({"cordoned": THIRD}, [CORDONED], id="cordoned"),
        pytest.param({"unhealthy": THIRD, "effect": "NoExecute"}, [EVICTING], id="evicting"),
        pytest.param(
            {"unhealthy": THIRD, "effect": "NoExecute", "cordoned": THIRD},
            [EVICTING, CORDONED],
            id="a cordon evicts nobody",
        ),
    ],
)
def test_a_gpu_out_of_use_stays_in_the_slice_with_taints(
    of: dict[str, Any], taints: list[Any]
) -> None:
    devices = slice_of(NodeGpus(NO_LINKS, free(NO_LINKS), **of))["spec"]["devices"]

    (tainted,) = [one for one in devices if "taints" in one]
    assert tainted["name"] == device_name(GpuUUID("GPU-3"))
    assert sorted(tainted["taints"], key=str) == sorted(taints, key=str)


def test_a_gpu_that_another_interface_has_is_not_offered() -> None:
    gpus = NodeGpus(NO_LINKS, free(NO_LINKS), withheld={GpuUUID("GPU-3")})

    names = [one["name"] for one in slice_of(gpus)["spec"]["devices"]]

    assert device_name(GpuUUID("GPU-3")) not in names
    assert len(names) == 7


def test_gpus_that_nvlink_connects_over_others_are_one_domain() -> None:
    node = machine({(0, 1): 2, (1, 2): 2, (5, 6): 1})

    found = {
        one["attributes"]["uuid"]["string"]: one["attributes"].get("nvlink", {}).get("int")
        for one in slice_of(NodeGpus(node, free(node)))["spec"]["devices"]
    }

    assert [found[f"GPU-{i}"] for i in range(8)] == [0, 0, 0, None, None, 5, 5, None]


@pytest.mark.parametrize(
    ("version", "as_semver"),
    [
        ("555.58.02", "555.58.2"),
        ("12.5", "12.5.0"),
        ("470", "470.0.0"),
        ("", ""),
        ("r555", ""),
        ("1.2.3.4", ""),
    ],
)
def test_versions_are_semantic_or_left_out(version: str, as_semver: str) -> None:
    assert semantic(version) == as_semver


@pytest.mark.parametrize(
    ("amount", "text"),
    [(16 * GIB, "16Gi"), (256 * MIB, "256Mi"), (15 * GIB + 256 * MIB, "15616Mi")],
)
def test_bytes_are_written_as_the_api_server_does(amount: int, text: str) -> None:
    assert quantity(amount) == text
