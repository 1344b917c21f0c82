"""The books: no byte over the limit, no refusal while there is room, right after any crash."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.core.memory.books_page import EDQUOT, Page, open_page
from vcuda_shim._shim import lib


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return open_page(tmp_path / "books", slots=8)


def test_a_reservation_is_refused_beyond_the_limit_and_changes_nothing(page: Page) -> None:
    books = page.join(0)

    assert lib.books_reserve(books, 0, 60, 100) == 0
    assert lib.books_reserve(books, 0, 41, 100) == -EDQUOT
    assert lib.books_reserve(books, 0, 40, 100) == 0

    assert page.total() == 100
    assert page.words.meters[0].memory_peak == 100


def test_an_estimate_counts_until_more_was_measured(page: Page) -> None:
    books = page.join(0)

    assert lib.books_take(books, lib.BOOKS_CONTEXT, 0, 30, 100) == 0
    assert page.total() == 30
    page.words.overhead[0][0] = 50
    assert page.total() == 50

    assert lib.books_take(books, lib.BOOKS_CONTEXT, 0, 51, 100) == -EDQUOT
    assert lib.books_take(books, lib.BOOKS_CONTEXT, 0, 30, 100) == 0
    assert page.total() == 80


def test_what_the_driver_has_taken_already_is_entered_over_the_limit(page: Page) -> None:
    books = page.join(0)
    assert lib.books_reserve(books, 0, 90, 100) == 0

    lib.books_admit(books, 0, 20)

    assert page.total() == 110
    assert page.words.meters[0].memory_peak == 110
    assert lib.books_reserve(books, 0, 1, 100) == -EDQUOT


def test_whoever_moves_memory_is_seen_by_all(page: Page) -> None:
    books = page.join(0)
    assert not lib.books_moving(books)

    for slot in 0, 5:
        page.words.activity[slot] += lib.VCUDA_ACTIVITY_BEGUN + 1
        assert lib.books_moving(books)
        page.words.activity[slot] -= 1
        assert not lib.books_moving(books)


def test_all_slots_and_what_the_driver_takes_count_together(page: Page) -> None:
    lib.books_reserve(page.join(1), 0, 30, 100)
    page.words.overhead[0][5] = 50
    books = page.join(0)

    assert lib.books_total(books, 0) == 80
    assert lib.books_reserve(books, 0, 21, 100) == -EDQUOT
    assert lib.books_reserve(books, 0, 20, 100) == 0


def test_devices_are_apart(page: Page) -> None:
    books = page.join(0)

    assert lib.books_reserve(books, 3, 100, 100) == 0
    assert lib.books_reserve(books, 4, 100, 100) == 0


def test_giving_back_never_goes_below_zero(page: Page) -> None:
    books = page.join(0)
    lib.books_reserve(books, 0, 10, 100)

    lib.books_release(books, 0, 11)

    assert page.total() == 0


@given(
    held=st.integers(0, 2**64 - 1),
    bytes_=st.integers(0, 2**64 - 1),
    limit=st.integers(0, 2**64 - 1),
)
def test_no_size_overflows(
    tmp_path_factory: pytest.TempPathFactory, held: int, bytes_: int, limit: int
) -> None:
    page = open_page(tmp_path_factory.getbasetemp() / "overflow", slots=8)
    page.words.used[0][1] = held

    result = lib.books_reserve(page.join(0), 0, bytes_, limit)

    assert (result == 0) == (held + bytes_ <= limit)
    assert page.words.used[0][0] == (bytes_ if result == 0 else 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 60), st.booleans()), min_size=1, max_size=40
    )
)
def test_the_books_are_what_was_reserved_and_not_given_back(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, int, bool]]
) -> None:
    page = open_page(tmp_path_factory.getbasetemp() / "history", slots=8)
    processes = [page.join(slot) for slot in range(3)]
    held: list[list[int]] = [[], [], []]

    for slot, size, gives_back in history:
        if gives_back and held[slot]:
            lib.books_release(processes[slot], 0, held[slot].pop())
        elif lib.books_reserve(processes[slot], 0, size, 100) == 0:
            held[slot].append(size)
        else:
            assert sum(map(sum, held)) + size > 100
        assert page.total() == sum(map(sum, held)) <= 100

    for process in processes:
        os.close(process.fd)


def test_what_a_stopped_peer_announced_delays_those_who_need_it_but_not_for_ever(
    page: Page,
) -> None:
    books = page.join(0)
    page.words.pending[0][3] = 60

    assert lib.books_reserve(books, 0, 40, 100) == 0
    assert lib.books_reserve(books, 0, 1, 100) == -EDQUOT
    assert lib.books_reserve(books, 1, 100, 100) == 0

    page.words.pending[0][3] = 0
    assert lib.books_reserve(books, 0, 60, 100) == 0


def test_an_announcement_is_taken_back_whatever_comes_of_it(page: Page) -> None:
    books = page.join(0)

    assert lib.books_reserve(books, 0, 60, 100) == 0
    assert lib.books_reserve(books, 0, 41, 100) == -EDQUOT

    assert page.words.pending[0][0] == 0


def test_threads_of_one_process_never_get_over_the_limit(page: Page) -> None:
    books = page.join(0)
    granted: list[int] = []

    def take() -> None:
        results = [lib.books_reserve(books, 0, 1, 300) for _ in range(200)]
        granted.extend(result for result in results if result == 0)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(granted) == 300
    assert page.total() == 300


def storm(page: Page, slot: int, limit: int) -> None:
    """Allocate and give back at random until killed."""
    chance = random.Random(slot)
    books = page.join(slot)
    held: list[int] = []
    while True:
        size = chance.randint(1, limit // 2)
        if lib.books_reserve(books, 0, size, limit) == 0:
            held.append(size)
        while held and chance.random() < 0.6:
            lib.books_release(books, 0, held.pop())


def start_storm(page: Page, slot: int, limit: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            storm(page, slot, limit)
        finally:
            os._exit(1)
    return child


def reap(page: Page, child: int, slot: int) -> None:
    """What the manager does at a death: the slot's words go to zero."""
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    lib.region_slot_free(page.words, slot)


@pytest.fixture
def children(page: Page) -> Iterator[dict[int, int]]:
    """Process ids by slot; whatever is left is killed."""
    running: dict[int, int] = {}
    yield running
    for slot, child in running.items():
        reap(page, child, slot)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_racing_processes_killed_at_any_moment_never_get_over_the_limit_nor_leave_a_byte(
    page: Page, children: dict[int, int]
) -> None:
    limit, chance = 1000, random.Random(1)
    for slot in range(1, 5):
        children[slot] = start_storm(page, slot, limit)

    observer = page.join(0)
    for _ in range(30):
        for _ in range(200):
            # not books_total(): words that change while they are read make a sum of no moment
            assert lib.books_room(observer, 0, 0, limit) == lib.BOOKS_ROOM
        slot = chance.randint(1, 4)
        reap(page, children.pop(slot), slot)
        children[slot] = start_storm(page, slot, limit)

    for slot in list(children):
        reap(page, children.pop(slot), slot)
    assert page.words.meters[0].memory_peak <= limit
    assert page.words.meters[0].memory_peak > limit // 2
    assert page.total() == 0
    assert lib.books_reserve(observer, 0, limit, limit) == 0
