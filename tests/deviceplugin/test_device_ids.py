"""Device IDs name a GPU and a slot of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.device_ids import (
    DeviceIDs,
    IndistinctGPUs,
    UnknownDeviceID,
    prefixes,
)
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import BLOCKS, gpus


def test_a_gpu_has_a_hundred_cores_and_its_memory_in_blocks() -> None:
    ids = DeviceIDs(gpus(3))

    assert len(ids.of(VCORE)) == 300
    assert len(ids.of(VMEMORY)) == 3 * BLOCKS
    assert ids.of(VCORE)[117][0] == "00000001-c-17"


def test_every_id_names_its_gpu_its_resource_and_its_place() -> None:
    ids = DeviceIDs(gpus(4))

    for resource, letter, size in ((VCORE, "c", 100), (VMEMORY, "m", BLOCKS)):
        for place, (device_id, gpu) in enumerate(ids.of(resource)):
            assert ids.gpu_of(device_id) == gpu
            assert device_id == f"{gpu.index:08x}-{letter}-{place % size}"


@pytest.mark.parametrize(
    "device_id", ["", "tencent.com/vcuda-core-3", "00000009-c-1", "00000000-c-100"]
)
def test_an_unknown_id_is_named(device_id: str) -> None:
    with pytest.raises(UnknownDeviceID) as raised:
        DeviceIDs(gpus(2)).gpu_of(device_id)

    assert repr(device_id) in str(raised.value)


@given(st.lists(st.uuids(), min_size=1, max_size=16, unique=True), st.integers(0, 32))
def test_ids_of_any_gpus_differ_and_are_short(uuids: list[object], shared: int) -> None:
    texts = {"0" * shared + str(uuid).replace("-", "")[shared:] for uuid in uuids}
    cards = tuple(replace(gpus(1).gpus[0], uuid=GpuUUID(f"GPU-{text}")) for text in texts)

    found = prefixes(cards)

    assert len(set(found)) == len(cards)
    assert all(8 <= len(prefix) <= 63 - len("-m-999999") for prefix in found)


def test_one_prefix_grows_for_all_where_two_gpus_begin_alike() -> None:
    first = gpus(1).gpus[0]
    alike = [
        replace(first, uuid=GpuUUID(uuid))
        for uuid in ("GPU-1f3a9c02-aaaa", "GPU-1f3a9c02-bbbb", "GPU-77777777-cccc")
    ]

    assert prefixes(tuple(alike)) == ("1f3a9c02a", "1f3a9c02b", "77777777c")


def test_two_gpus_with_one_uuid_cannot_be_served() -> None:
    card = gpus(1).gpus[0]

    with pytest.raises(IndistinctGPUs, match=card.uuid):
        prefixes((card, replace(card, index=1)))
