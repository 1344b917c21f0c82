"""Reading the kubelet's device checkpoint, in all its shapes."""

import json
from pathlib import Path

import pytest

from gpumanager.kubelet.checkpoint import (
    CheckpointUnreadable,
    DeviceHolder,
    parse_checkpoint,
    read_checkpoint,
)
from gpumanager.kubelet.pods import PodUID

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
    "document",
    [
        {"Data": {"PodDeviceEntries": [entry(["a", "b", "c"])]}, "Checksum": 7},
        {"Data": {"PodDeviceEntries": [entry({"0": ["a", "b"], "1": ["c"]})]}, "Checksum": 7},
        {"Data": {"PodDeviceEntries": [entry({"-1": ["a", "b", "c"], "0": None})]}},
        {"PodDeviceEntries": [entry(["c", "b", "a"])], "RegisteredDevices": {}},
    ],
    ids=["list", "by NUMA node", "no NUMA node", "oldest"],
)
def test_a_checkpoint_of_any_age_says_who_holds_what(document: object) -> None:
    assert parse_checkpoint(json.dumps(document).encode()) == (HOLDER,)


def test_a_checkpoint_without_entries_knows_nobody() -> None:
    assert parse_checkpoint(b'{"Data": {"PodDeviceEntries": null}, "Checksum": 1}') == ()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b"\xff\x00", json.dumps({"PodDeviceEntries": [entry(3)]}).encode()],
)
def test_a_checkpoint_that_cannot_be_used_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_bytes(text)

    with pytest.raises(CheckpointUnreadable, match=str(path)):
        read_checkpoint(path)


def test_an_absent_checkpoint_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="No such file"):
        read_checkpoint(tmp_path / "absent")
