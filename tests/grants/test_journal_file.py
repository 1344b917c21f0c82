"""The journal's file: nothing answered is lost, whenever the node stops or its disk fails."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumanager.grants import journal_file
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnreadable, JournalUnwritable
from tests.deviceplugin.admission.admission_node import Crash, CrashingFile
from tests.grants.journals import allocation, journal

OLD, NEW = journal(allocation("a")), journal(allocation("a"), allocation("b"))
LATER = journal(allocation("b"), allocation("c"))
EXTENDING = ("_append", "_force")
RENEWING = ("_write", "_replace", "_force_directory")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint" / "allocations.json"


def lines(path: Path) -> list[str]:
    return path.read_text().strip().splitlines()


def test_an_absent_journal_is_empty(path: Path) -> None:
    assert JournalFile(path).load() == Journal()


def test_a_change_is_one_line_more(path: Path) -> None:
    file = JournalFile(path)
    file.save(OLD)
    before = lines(path)

    file.save(NEW)

    assert lines(path)[:-1] == before
    assert JournalFile(path).load() == NEW


def test_a_journal_is_readable_by_people(path: Path) -> None:
    JournalFile(path).save(NEW)

    assert '"core_ids": ["0000000a-c-0..29"]' in lines(path)[1]


def test_a_file_whose_room_is_used_up_is_followed_by_a_new_one(path: Path) -> None:
    file = JournalFile(path, room=2000)

    for number in range(50):
        expected = journal(allocation("stays"), allocation(f"{number}"))
        file.save(expected)
        assert JournalFile(path).load() == expected

    assert path.stat().st_size < 5000


def test_of_room_that_is_not_used_nothing_is_parsed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    JournalFile(path).save(NEW)
    parsed, parse = list[bytes](), journal_file._parse

    def noted(text: bytes) -> tuple[int, str] | None:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(journal_file, "_parse", noted)

    JournalFile(path).load()

    assert len(parsed) == len(lines(path))


def test_the_directory_of_a_journal_is_made_with_those_above_it(tmp_path: Path) -> None:
    path = tmp_path / "var" / "lib" / "allocations.json"

    JournalFile(path).save(OLD)

    assert JournalFile(path).load() == OLD


@pytest.mark.parametrize(("used", "is_new"), [(0.45, False), (0.6, True)])
def test_a_file_is_followed_by_a_new_one_once_half_of_its_room_is_used(
    path: Path, used: float, *, is_new: bool
) -> None:
    one_line = len(journal_file.line(2, *journal_file.change(OLD, NEW)))
    file = JournalFile(path, room=round(one_line / used))
    file.save(OLD)
    file.save(NEW)
    before = path.stat().st_ino

    file.tidy(NEW)

    assert (path.stat().st_ino != before) == is_new


def test_room_is_made_while_nobody_waits(path: Path) -> None:
    file = JournalFile(path, room=4000)
    file.save(OLD)
    for number in range(8):
        file.save(journal(allocation(f"{number}")))
    scarce = len(lines(path))

    file.tidy(NEW)
    tidied = path.stat().st_ino
    file.tidy(NEW)

    assert len(lines(path)) < scarce
    assert path.stat().st_ino == tidied
    assert JournalFile(path).load() == NEW


def test_a_journal_that_cannot_be_used_says_where_and_why(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")

    with pytest.raises(JournalUnreadable, match="not a journal") as raised:
        JournalFile(path).load()

    assert str(path) in str(raised.value)


def test_a_journal_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(JournalUnwritable, match="make room"):
        JournalFile(tmp_path / "file" / "allocations.json").save(Journal())


@pytest.mark.parametrize(
    ("step", "after", "left"),
    [
        ("_append", False, OLD),
        ("_append", True, NEW),
        ("_force", False, NEW),
        ("_force", True, NEW),
    ],
)
def test_a_crash_while_a_line_is_written_leaves_it_or_not(
    path: Path, step: str, *, after: bool, left: Journal
) -> None:
    file = CrashingFile(path, step, after=after)
    file.save(OLD)

    with pytest.raises(Crash):
        file.save(NEW)

    assert JournalFile(path).load() == left
    JournalFile(path).save(NEW)
    assert JournalFile(path).load() == NEW


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
def test_a_crash_while_a_file_is_written_leaves_the_old_one_or_the_new(
    path: Path, step: str, *, after: bool, left: Journal
) -> None:
    JournalFile(path).save(OLD)

    with pytest.raises(Crash):
        CrashingFile(path, step, after=after).save(NEW)

    assert JournalFile(path).load() == left
    JournalFile(path).save(NEW)
    assert JournalFile(path).load() == NEW


class TearingFile(JournalFile):
    """Stops with half of the new words on the disk."""

    def _append(self, text: bytes) -> None:
        super()._append(text[: len(text) // 2])
        raise Crash

    def _write(self, contents: bytes) -> None:
        if self.path.exists():
            super()._write(contents[: len(contents) // 2])
            raise Crash
        super()._write(contents)


@pytest.mark.parametrize("room", [0, 10_000])
def test_what_is_half_written_is_not_read(path: Path, room: int) -> None:
    file = TearingFile(path, room)
    file.save(OLD)

    with pytest.raises(Crash):
        file.save(NEW)

    assert JournalFile(path).load() == OLD


class FailingDisk(JournalFile):
    """Its disk refuses a step, as often as it is told; then it works."""

    def __init__(self, path: Path, step: str, error: int, times: int, *, room: int) -> None:
        super().__init__(path, room)
        self.failures = 0
        run: Callable[..., None] = getattr(self, step)

        def fail(*arguments: bytes) -> None:
            if self.path.exists() and self.failures < times:
                self.failures += 1
                half = [part[: len(part) // 2] for part in arguments]
                if half:
                    run(*half)
                raise OSError(error, os.strerror(error))
            run(*arguments)

        setattr(self, step, fail)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize(
    ("step", "room"), [(s, 10_000) for s in EXTENDING] + [(s, 0) for s in RENEWING[:2]]
)
def test_a_change_that_the_disk_refuses_changes_nothing_and_later_ones_work(
    path: Path, step: str, room: int, error: int
) -> None:
    file = FailingDisk(path, step, error, times=1, room=room)
    file.save(OLD)

    with pytest.raises(JournalUnwritable, match=os.strerror(error)):
        file.save(NEW)
    if step != "_force":
        assert JournalFile(path).load() == OLD
    file.save(LATER)
    file.save(NEW)

    assert JournalFile(path).load() == NEW


def test_a_full_disk_is_not_filled_further_and_changes_that_have_room_still_work(
    path: Path,
) -> None:
    file = FailingDisk(path, "_write", errno.ENOSPC, times=3, room=3000)
    file.save(OLD)

    with pytest.raises(JournalUnwritable):
        file.save(Journal().put(*(allocation(f"{n}") for n in range(20))))
    assert not path.with_name("allocations.json.next").exists()
    file.save(OLD)

    assert JournalFile(path).load() == OLD
