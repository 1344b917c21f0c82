"""The journal's text and its file: nothing answered is lost, whenever the node stops."""

import json
from pathlib import Path

import pytest
from admission_node import Crash, CrashingFile
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.allocator.journal import (
    Allocation,
    Claimant,
    Journal,
    Malformed,
    State,
    decode,
    encode,
    pack,
    unpack,
)
from gpumanager.allocator.journal_file import JournalFile, JournalUnreadable, JournalUnwritable
from gpumanager.gpu.values import GpuUUID
from gpumanager.kubelet.pods import PodUID
from gpumanager.placement.values import Evaluator
from gpumanager.virtual.values import AllocationID

CLAIMANT = Claimant(PodUID("uid-a"), "default", "a", "main")


def allocation(name: str, **changes: object) -> Allocation:
    values: dict[str, object] = {
        "allocation": AllocationID(name),
        "admission": name,
        "core_ids": tuple(f"0000000a-c-{i}" for i in range(30)),
        "memory_ids": ("0000000a-m-0", "0000000a-m-2"),
        "gpus": (GpuUUID("GPU-0000000a"),),
        "evaluator": Evaluator.SHARE,
        "why": "fullest GPU that still fits",
        "time": 12.5,
    }
    return Allocation(**(values | changes))  # type: ignore[arg-type]


def journal(*allocations: Allocation) -> Journal:
    return Journal().put(*allocations)


texts = st.text(max_size=8)
ids = st.lists(
    st.one_of(texts, st.builds("{}-{}".format, texts, st.integers(0, 30))), max_size=12
).map(tuple)
allocations = st.builds(
    allocation,
    name=texts,
    admission=texts,
    core_ids=ids,
    memory_ids=ids,
    state=st.sampled_from(State),
    evaluator=st.sampled_from(Evaluator),
    why=texts,
    time=st.floats(0, 1e12),
    ceiling=st.none() | st.integers(1, 100),
    burst_us=st.integers(0, 1_000_000),
    candidate=st.none() | st.just(CLAIMANT),
    pod=st.none() | st.just(CLAIMANT),
    doubted=st.booleans(),
    released=st.booleans(),
)


def is_a_range(device_id: str) -> bool:
    return tuple(unpack([device_id])) != (device_id,)


@given(st.lists(allocations, max_size=4))
def test_what_is_written_is_read_again(kept: list[Allocation]) -> None:
    unambiguous = [a for a in kept if not any(is_a_range(i) for i in (*a.core_ids, *a.memory_ids))]
    written = journal(*unambiguous)

    assert decode(encode(written)) == written


def test_only_who_an_allocation_was_settled_for_counts_as_its_pod() -> None:
    kept = journal(
        allocation("guessed", candidate=CLAIMANT),
        allocation("settled", state=State.SETTLED, candidate=None, pod=CLAIMANT),
    )

    assert kept.settled_pod(AllocationID("settled")) == CLAIMANT.uid
    assert kept.settled_pod(AllocationID("guessed")) is None
    assert kept.settled_pod(AllocationID("unknown")) is None


def test_neighbouring_ids_are_written_as_a_range() -> None:
    assert list(pack(["a-c-0", "a-c-1", "a-c-2", "a-c-9", "b-m-10", "b-m-11"])) == [
        "a-c-0..2",
        "a-c-9",
        "b-m-10..11",
    ]


@given(st.data())
def test_a_damaged_journal_is_never_taken_for_a_whole_one(data: st.DataObject) -> None:
    contents = encode(journal(allocation("a"), allocation("b")))
    place = data.draw(st.integers(0, len(contents) - 1))
    byte = data.draw(st.integers(0, 255))
    damaged = contents[:place] + bytes([byte]) + contents[place + 1 :]

    try:
        read = decode(damaged)
    except Malformed:
        return
    assert read == decode(contents)


@pytest.mark.parametrize(
    ("contents", "cause"),
    [
        (b"", "not a journal"),
        (b"\xff\xfe\x00", "not a journal"),
        (b"[]", "not a journal"),
        (b"{}", "not a journal"),
        (encode(journal(allocation("a")))[:-40], "not a journal"),
        (encode(Journal()).replace(b'"version": 1', b'"version": 2'), "version 2; this agent"),
        (encode(journal(allocation("a"))).replace(b"12.5", b"13.5"), "checksum"),
        (b"[" * 100_000, "not a journal"),
    ],
    ids=["empty", "binary", "list", "no fields", "torn", "newer", "changed", "deep"],
)
def test_a_journal_that_cannot_be_used_says_why_and_what_to_do(
    tmp_path: Path, contents: bytes, cause: str
) -> None:
    path = tmp_path / "allocations.json"
    path.write_bytes(contents)

    with pytest.raises(JournalUnreadable, match=cause) as raised:
        JournalFile(path).load()

    assert str(path) in str(raised.value)
    assert "remove it" in str(raised.value)


def test_an_absent_journal_is_empty(tmp_path: Path) -> None:
    assert JournalFile(tmp_path / "allocations.json").load() == Journal()


def test_a_journal_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(JournalUnwritable):
        JournalFile(tmp_path / "file" / "allocations.json").save(Journal())


class TearingFile(JournalFile):
    """Stops with half of the new contents on the disk."""

    def _write(self, contents: bytes) -> None:
        super()._write(contents[: len(contents) // 2])
        raise Crash


OLD, NEW = journal(allocation("a")), journal(allocation("a"), allocation("b"))


@pytest.mark.parametrize(
    ("step", "after", "left"),
    [
        ("_write", False, OLD),
        ("_write", True, OLD),
        ("_replace", False, OLD),
        ("_replace", True, NEW),
        ("_force_directory", False, NEW),
        ("_force_directory", True, NEW),
    ],
)
def test_a_crash_leaves_the_old_journal_or_the_new_one(
    tmp_path: Path, step: str, *, after: bool, left: Journal
) -> None:
    path = tmp_path / "allocations.json"
    JournalFile(path).save(OLD)

    with pytest.raises(Crash):
        CrashingFile(path, step, after=after).save(NEW)

    assert JournalFile(path).load() == left
    JournalFile(path).save(NEW)
    assert JournalFile(path).load() == NEW


def test_a_half_written_journal_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "allocations.json"
    JournalFile(path).save(OLD)

    with pytest.raises(Crash):
        TearingFile(path).save(NEW)

    assert JournalFile(path).load() == OLD


def test_a_journal_is_readable_by_people(tmp_path: Path) -> None:
    path = tmp_path / "allocations.json"
    JournalFile(path).save(NEW)

    document = json.loads(path.read_text())

    assert document["allocations"][0]["core_ids"] == ["0000000a-c-0..29"]
