"""The two files of an allocation: limits that reach running processes, books that survive."""

import mmap
import os
from fcntl import F_ADD_SEALS, F_SEAL_WRITE, fcntl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.pages.books import (
    BOOKS,
    MAX_PROCESSES,
    SLOT_TRIES,
    Books,
    read_usage,
)
from gpumanager.limits.pages.config import CONFIG, MAX_DEVICES, Config
from gpumanager.limits.pages.mapping import RegionBroken, RegionUnreadable, begin
from gpumanager.limits.processes import Process, find
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from vcuda_shim._shim import ffi, lib

NAME = AllocationID("a1")
BOOT = bytes(range(16))
UNKNOWN = (None, None)


def gpu(number: int) -> GpuUUID:
    return GpuUUID(f"GPU-00000000-0000-0000-0000-{number:012x}")


def limit(number: int = 0, memory: int = GIB, cores: int = 30) -> Limit:
    return Limit(gpu(number), memory=Bytes(memory), cores=cores, ceiling=cores)


def held(books: Books) -> int:
    return int(lib.region_device_bytes(books.words, 0))


def mapped(path: Path) -> Any:
    """The configuration as a process of the container has it."""
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return ffi.from_buffer("struct vcuda_config *", pages)


def test_a_changed_limit_shows_in_a_mapping_made_before(tmp_path: Path) -> None:
    with Config.prepare(tmp_path, NAME, [limit(memory=GIB)]) as config:
        seen = mapped(tmp_path / "config")
        before = seen.generation

        config.write([limit(memory=2 * GIB, cores=60)])

        assert (seen.limits[0].memory_bytes, seen.limits[0].core_percent) == (2 * GIB, 60)
        assert seen.generation > before


def test_a_device_keeps_its_place_and_a_withdrawn_one_may_use_nothing(tmp_path: Path) -> None:
    with Config.prepare(tmp_path, NAME, [limit(0), limit(1)]) as config:
        config.write([limit(1), limit(2)])

        assert config.limits() == (limit(0, memory=0, cores=0), limit(1), limit(2))


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        ([limit(number) for number in range(MAX_DEVICES + 1)], "16 at most"),
        (
            [limit(0, memory=5), Limit(GpuUUID("GPU-zero"), Bytes(1), 1, 1)],
            "'GPU-zero' is not the UUID of a GPU",
        ),
    ],
    ids=["more GPUs than a region holds", "a name that is no GPU"],
)
def test_limits_that_cannot_be_written_are_refused_and_change_nothing(
    tmp_path: Path, limits: list[Limit], cause: str
) -> None:
    with Config.prepare(tmp_path, NAME, [limit(0)]) as config:
        with pytest.raises(GpuManagerError, match=cause):
            config.write(limits)

        assert config.limits() == (limit(0),)


def test_books_of_this_boot_are_opened_as_they_are(tmp_path: Path) -> None:
    with Books.prepare(tmp_path, BOOT) as first:
        slot = first.claim(Process(7, 70))
        first.words.used[0][slot] = 123

        with Books.prepare(tmp_path, BOOT) as books:
            assert dict(books.owners()) == dict(books.recorded_owners()) == {slot: Process(7, 70)}
            assert held(books) == 123


def test_books_that_no_living_process_has_are_begun_anew(tmp_path: Path) -> None:
    """Also where the file says that this process has a slot: it has them in no way."""
    with Books.prepare(tmp_path, BOOT) as books:
        for process in (find(os.getpid()), Process(7, 70)):
            assert process is not None
            books.words.used[0][books.claim(process)] = 123

    with Books.prepare(tmp_path, BOOT) as books:
        assert books.trouble is None
        assert dict(books.owners()) == dict(books.recorded_owners()) == {}
        assert held(books) == 0


def test_books_that_are_a_file_are_refused(tmp_path: Path) -> None:
    """As managers of before wrote them: their containers have to start again."""
    (tmp_path / "books").write_bytes(bytes(ffi.buffer(new_head())))

    with pytest.raises(RegionBroken, match="delete the pod"):
        Books.prepare(tmp_path, BOOT)


def test_no_process_can_shrink_grow_or_seal_books(tmp_path: Path) -> None:
    with Books.prepare(tmp_path, BOOT) as books:
        theirs = books.open_for(observer=False)
        size = os.fstat(theirs).st_size

        for attempt in (
            lambda: os.ftruncate(theirs, 0),
            lambda: os.ftruncate(theirs, 2 * size),
            lambda: os.posix_fallocate(theirs, 0, 2 * size),
            lambda: fcntl(theirs, F_ADD_SEALS, F_SEAL_WRITE),
        ):
            with pytest.raises(PermissionError):
                attempt()

        os.close(theirs)
        assert books.trouble is None


def test_a_configuration_that_cannot_be_written_is_an_error_and_no_signal(tmp_path: Path) -> None:
    """What it says is written later, when the file is whole again."""
    with Config.prepare(tmp_path, NAME, [limit(memory=GIB)]) as config:
        os.truncate(tmp_path / "config", 0)

        with pytest.raises(GpuManagerError, match="cannot be changed"):
            config.write([limit(memory=2 * GIB)])

        assert (config.limits(), config.recover()) == ((limit(memory=2 * GIB),), False)
        os.truncate(tmp_path / "config", CONFIG.size)
        assert config.recover()
        seen = mapped(tmp_path / "config")
        assert (seen.limits[0].memory_bytes, config.lost) == (2 * GIB, False)


def test_books_of_an_earlier_boot_are_begun_anew(tmp_path: Path) -> None:
    with Books.prepare(tmp_path, BOOT) as books:
        books.claim(Process(7, 70))
        books.words.meters[0].virtual_time = 10**18

    with Books.prepare(tmp_path, bytes(16)) as books:
        assert list(books.owners()) == []
        assert books.words.meters[0].virtual_time == 0


@pytest.mark.parametrize("name", ["config", "books"])
@pytest.mark.parametrize("left", [b"", bytes(4096)], ids=["empty", "zeros"])
def test_a_file_that_lost_its_bytes_with_the_machine_is_begun_anew(
    tmp_path: Path, name: str, left: bytes
) -> None:
    (tmp_path / name).write_bytes(left)

    Config.prepare(tmp_path, NAME, [limit()]).close()
    with Books.prepare(tmp_path, BOOT):
        assert read_usage(tmp_path).devices[0].limit == limit()


def new_head() -> Any:
    head = ffi.new("struct vcuda_books *")
    begin(head, BOOKS)
    return head


def prepare(directory: Path, name: str) -> None:
    if name == "config":
        Config.prepare(directory, NAME, [limit()]).close()
    else:
        Books.prepare(directory, BOOT).close()


@pytest.mark.parametrize(
    ("name", "offset", "patch", "cause"),
    [
        ("config", 0, b"junk", "not a .* file: it starts with 0x6b6e756a"),
        ("books", 0, b"junk", "not a .* file: it starts with 0x6b6e756a"),
        ("config", 4, b"\x09\0\0\0", "layout 9; this manager knows 3"),
        ("books", 4, b"\x09\0\0\0", "layout 9; this manager knows 1"),
        ("config", 8, b"\x01\0\0\0", "says it has 1 bytes"),
        ("config", None, b"x" * 100, "has 100 bytes, not"),
        ("books", None, b"x" * 100, "has 100 bytes, not"),
    ],
)
def test_a_broken_file_is_an_error_that_names_file_cause_and_remedy(
    tmp_path: Path, name: str, offset: int | None, patch: bytes, cause: str
) -> None:
    prepare(tmp_path, name)
    path = tmp_path / name
    whole = bytearray(path.read_bytes())
    if offset is None:
        whole = bytearray(patch)
    else:
        whole[offset : offset + len(patch)] = patch
    path.write_bytes(whole)

    with pytest.raises(RegionBroken, match=f"{path}: {cause}.*; delete the pod, then remove"):
        prepare(tmp_path, name)
    assert path.read_bytes() == whole


def test_the_usage_of_a_directory_that_is_gone_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(RegionUnreadable, match=r"config: cannot be opened: No such file"):
        read_usage(tmp_path)


def test_usage_sums_what_the_processes_hold(tmp_path: Path) -> None:
    Config.prepare(tmp_path, NAME, [limit(0), limit(1)]).close()
    with Books.prepare(tmp_path, BOOT) as books:
        first, second = books.claim(Process(7, 70)), books.claim(Process(8, 80))
        books.words.used[0][first], books.words.used[1][second] = 100, 20
        books.words.overhead[0][second] = 3
        books.words.meters[0].memory_peak = 500
        books.words.meters[0].memory_denied = 4

        usage = read_usage(tmp_path)

    assert usage.allocation == tmp_path.name
    assert [device.held for device in usage.devices] == [103, 20]
    assert (usage.devices[0].peak, usage.devices[0].denied) == (500, 4)
    assert [(process.pid, process.held) for process in usage.processes] == [
        (7, (100, 0)),
        (8, (3, 20)),
    ]


def test_the_configuration_is_for_all_to_read_and_the_books_for_nobody_else(tmp_path: Path) -> None:
    for name in ("config", "books"):
        prepare(tmp_path, name)

    assert (tmp_path / "config").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "books").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def books(tmp_path: Path) -> Any:
    with Books.prepare(tmp_path, BOOT) as opened:
        yield opened


def test_when_every_slot_is_taken_the_next_process_gets_none(books: Books) -> None:
    for pid in range(1, MAX_PROCESSES + 1):
        assert books.claim(Process(pid, 1)) == pid - 1

    assert books.claim(Process(5000, 1)) is None

    assert books.release(17, Process(18, 1))
    assert books.claim(Process(5000, 1)) == 17


def test_a_process_that_says_hello_again_has_its_slot_again_and_holds_nothing(books: Books) -> None:
    slot = books.claim(Process(7, 70))
    books.words.used[3][slot] = 55

    assert books.claim(Process(7, 70)) == slot
    assert books.words.used[3][slot] == 0


def test_a_slot_says_what_its_process_calls_itself_until_it_is_free(books: Books) -> None:
    slot, unknown = books.claim(Process(4711, 70), 12), books.claim(Process(4712, 70), -1)
    assert slot is not None
    said = [books.words.inner_pid[slot], books.words.inner_pid[unknown]]

    books.free(slot)

    assert said == [12, 0]
    assert books.words.inner_pid[slot] == 0


def test_a_measurement_counts_only_beside_what_was_used_when_it_was_made(books: Books) -> None:
    """What a request reserves after it is not taken from it, as if the driver had less."""
    slot = books.claim(Process(7, 70))
    assert slot is not None
    mark = books.activity(slot) or 0
    books.words.used[0][slot] = 30
    books.words.activity[slot] += lib.VCUDA_ACTIVITY_BEGUN

    assert not books.enter_measured(slot, mark, [Bytes(100)], UNKNOWN)
    assert books.overhead(0, slot) == 0
    assert books.enter_measured(slot, books.activity(slot) or 0, [Bytes(100)], UNKNOWN)
    assert books.overhead(0, slot) == 70


def test_an_estimate_of_before_a_measurement_goes_and_a_later_one_stays(books: Books) -> None:
    slot = books.claim(Process(7, 70))
    assert slot is not None
    words, mark = books.words, books.activity(slot) or 0
    words.context[0][slot], words.context[1][slot] = 30, 50

    books.drop_estimate(0, slot, mark, 20)  # it has grown since the mark was taken
    books.drop_estimate(1, slot, mark + lib.VCUDA_ACTIVITY_BEGUN, 50)  # its memory moves
    assert [books.estimate(device, slot) for device in (0, 1)] == [30, 50]

    books.drop_estimate(0, slot, mark, 30)
    books.drop_estimate(1, slot, mark, 50)
    assert [books.estimate(device, slot) for device in (0, 1)] == [0, 0]


BESIDE = lib.VCUDA_BESIDE
MANAGED, OPENED = 1000, 40
"""Of one process that has 300 plain bytes, 200 of the driver's own, and this besides."""


def described(books: Books, devices: int = 1) -> int:
    slot = books.claim(Process(7, 70))
    assert slot is not None
    words = books.words
    words.used[0][slot], words.overhead[0][slot] = 300 + MANAGED, 200
    if devices <= BESIDE:
        words.used[BESIDE][slot], words.context[BESIDE][slot] = MANAGED, OPENED
    return slot


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_the_drivers_own_bytes_are_told_from_managed_and_opened_memory(
    books: Books, *, managed: bool, opened: bool, known: bool
) -> None:
    """Whatever its figure contains; where that is not known they stay as they were."""
    slot = described(books)
    figure = Bytes(300 + 200 + managed * MANAGED + opened * OPENED)
    contents = (managed, opened) if known else UNKNOWN

    assert books.enter_measured(slot, books.activity(slot) or 0, [figure], contents)

    assert books.overhead(0, slot) == 200
    assert (books.managed(0, slot, 1), books.imported(0, slot, 1)) == (MANAGED, OPENED)


def test_what_the_driver_takes_more_counts_although_managed_memory_is_not_in_its_figure(
    books: Books,
) -> None:
    slot = described(books)

    assert books.enter_measured(slot, books.activity(slot) or 0, [Bytes(300 + 700)], (False, False))

    assert books.overhead(0, slot) == 700


def test_a_process_that_does_not_know_of_such_words_is_measured_as_ever(books: Books) -> None:
    """Its shim is older than this manager: all that it uses is in the figure."""
    slot = described(books, devices=MAX_DEVICES)

    assert books.enter_measured(slot, books.activity(slot) or 0, [Bytes(1600)], UNKNOWN)

    assert books.overhead(0, slot) == 300
    assert (books.managed(0, slot, 1), books.imported(0, slot, 1)) == (0, 0)


def test_a_manager_that_does_not_know_of_such_words_sums_and_empties_as_ever(books: Books) -> None:
    """They lie where it has no device; a slot that it gives away has none of them."""
    slot = described(books)

    assert held(books) == 300 + MANAGED + 200
    books.free(slot)
    assert (books.words.used[BESIDE][slot], books.words.context[BESIDE][slot]) == (0, 0)


def test_of_a_dead_process_only_what_it_exported_stays_charged(books: Books) -> None:
    slot = described(books)
    books.words.pending[BESIDE][slot] = 250

    assert not books.leave(slot, Process(8, 80), 1)
    assert books.leave(slot, Process(7, 70), 1)

    assert lib.region_device_bytes(books.words, 0) == 250
    assert books.release(slot, Process(7, 70))
    assert lib.region_device_bytes(books.words, 0) == 0
    assert books.words.pending[BESIDE][slot] == 0


def test_where_all_places_are_devices_nothing_is_said_besides(books: Books) -> None:
    slot = described(books)
    count = BESIDE + 1

    assert books.managed(0, slot, count) == books.imported(0, slot, count) == 0
    assert books.used(BESIDE, slot) == MANAGED  # of the ninth device


def test_a_pid_that_came_back_does_not_inherit_what_the_dead_one_held(books: Books) -> None:
    slot = books.claim(Process(7, 70))
    assert slot is not None
    books.words.used[0][slot] = 55

    assert books.claim(Process(7, 99)) == slot
    assert books.words.used[0][slot] == 0
    assert not books.release(slot, Process(7, 70))
    assert dict(books.owners()) == {slot: Process(7, 99)}


def test_a_crash_between_start_time_and_pid_leaves_a_free_slot(books: Books) -> None:
    books.words.slot_limit = 1
    books.words.slots[0].start_time = 70

    assert dict(books.owners()) == {0: None}
    assert books.claim(Process(8, 80)) == 0


Step = tuple[str, int]
steps = st.lists(st.tuples(st.sampled_from(["claim", "release", "use"]), st.integers(1, 6)))


@given(steps)
def test_any_history_of_processes_leaves_each_with_its_own_slot_and_bytes(
    tmp_path_factory: pytest.TempPathFactory, history: list[Step]
) -> None:
    directory = tmp_path_factory.mktemp("b")
    slots: dict[int, int | None] = {}
    amounts: dict[int, int] = {}
    with Books.prepare(directory, BOOT) as books:
        for verb, pid in history:
            if verb == "claim":
                slots[pid], amounts[pid] = books.claim(Process(pid, 1)), 0
            elif pid in slots and verb == "use":
                books.words.used[0][slots[pid]] += pid
                amounts[pid] += pid
            elif pid in slots:
                slot = slots.pop(pid)
                assert slot is not None
                assert books.release(slot, Process(pid, 1))
                del amounts[pid]

        owners = {owner.pid: slot for slot, owner in books.owners() if owner}
        assert owners == slots
        assert len(set(slots.values())) == len(slots)
        assert held(books) == sum(amounts.values())


def test_few_slots_are_tried_where_all_are_locked(tmp_path: Path) -> None:
    """One lock covers the bytes of all slots; each HELLO was a thousand tries."""
    tried: list[int] = []

    def busy(slot: int) -> bool:
        tried.append(slot)
        return True

    with Books.prepare(tmp_path, BOOT) as books:
        assert books.claim(Process(7, 70), busy=busy) is None

        assert len(tried) == SLOT_TRIES
        assert not any(owner for _, owner in books.owners())


def test_limits_are_what_was_written_whatever_the_page_says(tmp_path: Path) -> None:
    with Config.prepare(tmp_path, NAME, [limit(0), limit(1)]) as config:
        assert config._page is not None
        page = config._page.words
        page.limits[0].memory_bytes = 2**60
        page.device_count = 16

        assert config.limits() == (limit(0), limit(1))

        config.write([limit(0, memory=5)])
        assert config.limits()[0].memory == 5
        assert page.limits[0].memory_bytes == 5
