"""Reading the kubelet's device checkpoint, of 1.20 and later."""

import json
from pathlib import Path

import pytest

from gpumanager.ids import PodUID
from gpumanager.kubelet.checkpoint import (
    CheckpointUnreadable,
    DeviceHolder,
    parse_checkpoint,
    read_checkpoint,
)

HOLDER = DeviceHolder(PodUID("u1"), "main", "tencent.com/vcuda-core", frozenset({"a", "b", "c"}))


def entry(ids: object) -> dict[str, object]:
    return {
        "PodUID": "u1",
        "ContainerName": "main",
        "ResourceName": "tencent.com/vcuda-core",
        "DeviceIDs": ids,
        "AllocResp": "CgA=",
    }


@pytest.mark.parametrize(
    "ids",
    [{"0": ["a", "b"], "1": ["c"]}, {"-1": ["a", "b", "c"], "0": None}],
    ids=["by NUMA node", "no NUMA node"],
)
def test_a_checkpoint_says_who_holds_what(ids: object) -> None:
    document = {"Data": {"PodDeviceEntries": [entry(ids)]}, "Checksum": 7}

    (found,) = parse_checkpoint(json.dumps(document).encode())

    assert (found, found.response) == (HOLDER, "CgA=")


def test_a_checkpoint_without_entries_knows_nobody() -> None:
    assert parse_checkpoint(b'{"Data": {"PodDeviceEntries": null}, "Checksum": 1}') == ()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff\x00",
        b"[" * 100_000,
        b'{"Data": []}',
        b'{"Data": {"PodDeviceEntries": {"a": 1}}}',
        b'{"Data": {"PodDeviceEntries": [null]}}',
        *(
            json.dumps({"Data": {"PodDeviceEntries": [wrong]}}).encode()
            for wrong in (
                entry(3),
                entry(["a"]),
                entry("abc"),
                entry([["a"]]),
                entry([1]),
                entry({"0": "abc"}),
                entry({"0": {"a": 1}}),
                entry({"0": ["a"]}) | {"PodUID": {"a": 1}},
                entry({"0": ["a"]}) | {"ContainerName": None},
                entry({"0": ["a"]}) | {"ResourceName": 7},
                entry({"0": ["a"]}) | {"AllocResp": 7},
            )
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_bytes(text)

    with pytest.raises(CheckpointUnreadable, match=str(path)):
        read_checkpoint(path)


def test_an_absent_checkpoint_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="No such file"):
        read_checkpoint(tmp_path / "absent")


def test_half_a_checkpoint_is_never_taken_for_a_whole_one() -> None:
    entries = [entry({"0": ["a"]}), entry({"0": ["b"]})]
    text = json.dumps({"Data": {"PodDeviceEntries": entries}}).encode()

    for length in range(len(text)):
        with pytest.raises(CheckpointUnreadable):
            parse_checkpoint(text[:length])


def test_a_checkpoint_larger_than_any_node_makes_it_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "kubelet_internal_checkpoint"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(CheckpointUnreadable, match="larger than"):
        read_checkpoint(path)


def test_a_full_nodes_checkpoint_is_read() -> None:
    entries = [entry({"0": [f"{pod}-m-{n}" for n in range(500)]}) for pod in range(256)]

    holders = parse_checkpoint(json.dumps({"Data": {"PodDeviceEntries": entries}}).encode())

    assert sum(len(one.ids) for one in holders) == 256 * 500
