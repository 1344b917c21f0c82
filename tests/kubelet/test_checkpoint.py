"""Reading the kubelet's device checkpoint, in all its shapes."""

import json
from pathlib import Path

import pytest

from gpumanager.ids import PodUID
from gpumanager.kubelet.checkpoint import (
    CheckpointFile,
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
            json.dumps({"PodDeviceEntries": [wrong]}).encode()
            for wrong in (
                entry(3),
                entry("abc"),
                entry([["a"]]),
                entry([1]),
                entry({"0": "abc"}),
                entry({"0": {"a": 1}}),
                entry(["a"]) | {"PodUID": {"a": 1}},
                entry(["a"]) | {"ContainerName": None},
                entry(["a"]) | {"ResourceName": 7},
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
    text = json.dumps({"Data": {"PodDeviceEntries": [entry(["a"]), entry(["b"])]}}).encode()

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


def write(path: Path, *uids: str) -> None:
    """As the kubelet does: a new file in place of the old one."""
    rows = [{**entry(["a"]), "PodUID": uid} for uid in uids]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"Data": {"PodDeviceEntries": rows}}))
    new.replace(path)


def test_an_entry_is_decoded_again_only_where_its_bytes_are_others(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    file = CheckpointFile(path)
    write(path, "u1", "u2")
    stays, _ = file.read()

    write(path, "u3", "u1")
    new, kept = file.read()

    assert new.pod_uid == "u3"
    assert kept is stays


def test_a_file_is_unchanged_until_the_kubelet_writes_another(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    file = CheckpointFile(path)
    assert file.unchanged() is None

    write(path, "u1")
    assert file.unchanged() is None

    found = file.read()
    assert file.unchanged() == found != ()
    write(path, "u1")
    assert file.unchanged() is None


def test_a_half_written_file_leaves_what_was_read_before(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    file = CheckpointFile(path)
    write(path, "u1")
    before = file.read()
    whole = path.read_bytes()

    path.write_bytes(whole[:-4])
    with pytest.raises(CheckpointUnreadable):
        file.read()
    assert file.unchanged() is None

    write(path, "u1")
    assert file.read() == before
