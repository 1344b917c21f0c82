"""The journal's words: what is written is read again, and damage is never taken for the whole."""

import hashlib
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Grant, State
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import change, line, read, salvage
from gpumanager.grants.journal_text import Malformed, dump, pack, record
from gpumanager.ids import AllocationID
from tests.grants.journals import CLAIMANT, allocation, histories, journal, written

A, AB, B = (
    journal(allocation("a")),
    journal(allocation("a"), allocation("b")),
    journal(allocation("b")),
)
LOG = written(A, AB, B)


def document(kept: Journal, version: int = 1) -> bytes:
    """A journal as it was before there were logs."""
    records = [record(a) for a in kept.grants.values()]
    lines = "\n".join(dump(one) for one in records)
    checksum = hashlib.sha256(lines.encode()).hexdigest()
    return dump({"version": version, "checksum": checksum, "allocations": records}).encode()


@settings(max_examples=50)
@given(histories)
def test_what_is_written_is_read_again(history: list[list[Grant]]) -> None:
    journals = [journal(*kept) for kept in history]

    assert read(written(*journals)) == (journals[-1], False)


@settings(max_examples=50)
@given(histories.map(lambda history: journal(*history[0])))
def test_a_journal_of_before_is_read(kept: Journal) -> None:
    assert read(document(kept)) == (kept, False)


def test_gpus_of_a_grant_keep_their_order() -> None:
    """A container sees them in this order, before a restart of the agent and after."""
    gpus = (GpuUUID("GPU-c"), GpuUUID("GPU-a"), GpuUUID("GPU-b"))

    kept = read(written(journal(allocation("a", gpus=gpus))))[0]

    assert kept.grants[AllocationID("a")].gpus == gpus


def test_room_behind_the_last_line_says_nothing() -> None:
    assert read(LOG + b"\n" * 5000) == (B, False)


def test_a_change_is_only_what_has_changed() -> None:
    kept = allocation("kept")
    before = journal(kept, allocation("goes"), allocation("settles"))
    after = journal(kept, allocation("settles", why="settled"), allocation("comes"))

    found = change(before, after)

    assert [a.id for a in found[0]] == ["settles", "comes"]
    assert found[1] == ["goes"]
    assert change(after, after) == ([], [])


def test_a_grant_that_is_forgotten_is_all_that_a_change_says() -> None:
    first, second = allocation("first"), allocation("second")

    found = change(journal(first, second), journal(first, second).drop([first.id]))

    assert found == ([], [first.id])


def test_a_released_grant_holds_nothing_and_is_in_the_journal_until_it_is_dropped() -> None:
    kept, ended = allocation("kept"), allocation("ended")

    released = journal(kept, ended).release([ended.id])

    assert released.live() == (kept,)
    assert list(released.grants) == [kept.id, ended.id]
    assert released.drop([ended.id]) == journal(kept)


def test_only_the_grants_that_are_named_are_suspect() -> None:
    found = journal(allocation("kept"), allocation("doubted")).suspect([AllocationID("doubted")])

    assert {name: one.suspect for name, one in found.grants.items()} == {
        "kept": False,
        "doubted": True,
    }


def test_only_who_an_allocation_was_settled_for_counts_as_its_pod() -> None:
    kept = journal(
        allocation("guessed", candidate=CLAIMANT),
        allocation("settled", state=State.CONFIRMED, candidate=None, pod=CLAIMANT),
    )

    assert kept.confirmed(AllocationID("settled")) == CLAIMANT
    assert kept.confirmed(AllocationID("guessed")) is None
    assert kept.confirmed(AllocationID("unknown")) is None


def test_neighbouring_ids_are_written_as_a_range() -> None:
    assert list(pack(["a-c-0", "a-c-1", "a-c-2", "a-c-9", "b-m-10", "b-m-11"])) == [
        "a-c-0..2",
        "a-c-9",
        "b-m-10..11",
    ]


@given(st.sets(st.integers(0, 30)), st.integers(0, 511))
def test_half_a_last_line_is_left_out(sectors: set[int], offset: int) -> None:
    """Whichever sectors of it reached the disk, in whatever order."""
    before = written(A, AB)
    room = b"\n" * (offset + 30 * 512 - len(before) % 512)
    changed = Journal().put(*(allocation(f"{n}") for n in range(9)))
    last = line(3, *change(AB, changed))
    contents = bytearray(before + room)
    for sector in sectors:
        start = max(0, sector * 512 - offset)
        part = last[start : max(0, (sector + 1) * 512 - offset)]
        contents[len(before) + start : len(before) + start + len(part)] = part

    found = read(bytes(contents))

    all_there = contents[len(before) :].startswith(last)
    touched = bytes(contents) != before + room
    assert found == ((changed, False) if all_there else (AB, touched))


@given(st.data())
def test_a_damaged_journal_is_never_taken_for_a_whole_one(data: st.DataObject) -> None:
    """One byte changed: it is refused; only the last line may be taken for one half written."""
    place = data.draw(st.integers(0, len(LOG) - 1))
    byte = data.draw(st.integers(0, 255))
    last = LOG.rindex(b"\n", 0, len(LOG) - 1) + 1
    damaged = LOG[:place] + bytes([byte]) + LOG[place + 1 :]

    try:
        found = read(damaged)
    except Malformed:
        assert place < last
        return
    assert found == (B, False) if damaged == LOG else place >= last - 1
    assert found in ((B, False), (AB, True))


def test_a_line_that_is_missing_is_noticed() -> None:
    lines = written(A, AB, A, B).splitlines(keepends=True)
    del lines[3]

    with pytest.raises(Malformed, match="whole lines follow"):
        read(b"".join(lines))


@pytest.mark.parametrize(
    ("contents", "cause"),
    [
        (b"", "not a journal"),
        (b"\xff\xfe\x00", "not a journal"),
        (b"[]", "not a journal"),
        (b"{}", "not a journal"),
        (b"[" * 100_000, "not a journal"),
        (document(A)[:-40], "not a journal"),
        (document(A, version=7), "version 7; this agent"),
        (document(A).replace(b"12.5", b"13.5"), "checksum"),
        (b"\n" * 100, "not a journal"),
        (LOG[1:], "not a journal"),
        (written(AB)[:-1], "line 3 of the 3 it begins with"),
        (LOG.replace(b"12.5", b"13.5", 1), "line 2"),
        (LOG.replace(b'"id": "b"', b'"id": "c"', 1), "line 3 is damaged"),
    ],
    ids=[
        "empty",
        "binary",
        "list",
        "no fields",
        "deep",
        "one document, torn",
        "one document, newer",
        "one document, changed",
        "only room",
        "first line",
        "torn where it begins",
        "changed where it begins",
        "changed in the middle",
    ],
)
def test_what_cannot_be_used_says_why(contents: bytes, cause: str) -> None:
    with pytest.raises(Malformed, match=cause):
        read(contents)


def test_a_log_of_a_newer_agent_is_refused() -> None:
    rest = b'0 {"kept": 0, "version": 4}'

    with pytest.raises(Malformed, match="version 4; this agent knows up to 3"):
        read(b"%08x %s\n" % (zlib.crc32(rest), rest))


def test_of_a_damaged_log_every_whole_promise_is_salvaged() -> None:
    damaged = written(A, AB, B).replace(b'"drop": ["a"]', b'"drop": ["x"]')

    assert salvage(damaged) == AB
    assert salvage(b"nothing of ours\n") == Journal()


def test_a_change_has_only_what_has_changed_however_grants_have_moved() -> None:
    first, kept, last, new = (allocation(name) for name in "abcd")

    moved = change(journal(first, kept, last), journal(kept, last, new))

    assert moved == ([new], [first.id])
