"""Peers take back what the dead held, and never a byte of the living."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.core.memory.books_page import (
    EDQUOT,
    PATIENCE,
    Page,
    Peer,
    open_page,
    pauses,
    peer,
)
from vcuda_shim._shim import lib

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork, with threads

LIMIT = 100


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return open_page(tmp_path / "books")


def hold(amount: int) -> Callable[[Any], object]:
    def act(books: Any) -> None:
        assert lib.books_reserve(books, 0, amount, LIMIT) == 0

    return act


def look_again() -> None:
    """A process looks for the dead every 5 ms at most."""
    time.sleep(0.01)


def test_who_is_refused_takes_back_what_a_killed_process_held(page: Page) -> None:
    books = page.enter()
    with peer(page, hold(60)) as other:
        assert lib.books_reserve(books, 0, 41, LIMIT) == -EDQUOT
        other.kill()
        look_again()

        assert lib.books_reserve(books, 0, 100, LIMIT) == 0

        assert page.total() == 100
        assert page.words.slots[other.slot].pid == other.pid  # the manager's to free


def test_what_a_dead_process_exported_stays_charged_as_the_drivers_own(page: Page) -> None:
    """Another process may hold it; the manager releases it after a measurement."""

    def act(books: Any) -> None:
        books.devices = 1
        hold(60)(books)
        lib.books_export(books, 0, 25)

    books = page.enter()
    books.devices = 1
    with peer(page, act) as other:
        other.kill()
        look_again()

        assert lib.books_reserve(books, 0, 76, LIMIT) == -EDQUOT
        look_again()
        assert lib.books_reserve(books, 0, 75, LIMIT) == 0

        assert page.words.used[0][other.slot] == 0
        assert lib.books_room(books, 0, 1, LIMIT) == lib.BOOKS_DRIVER


def test_everything_a_dead_process_held_goes_on_every_device(page: Page) -> None:
    def act(books: Any) -> None:
        for device in (0, 3, 15):
            lib.books_reserve(books, device, 10, LIMIT)
            lib.books_take(books, lib.BOOKS_CONTEXT, device, 20, LIMIT)
            page.words.overhead[device][books.slot] = 40
            page.words.pending[device][books.slot] = 5

    books = page.enter()
    with peer(page, act) as other:
        other.kill()
        assert lib.peers_reclaim(books, 3)

        words = page.words
        for kind in (words.used, words.context, words.overhead, words.pending):
            assert [kind[device][other.slot] for device in range(16)] == [0] * 16


def test_an_announcement_of_a_dead_process_is_not_waited_for(page: Page) -> None:
    def announce(books: Any) -> None:
        page.words.pending[0][books.slot] = 60

    books = page.enter()
    with peer(page, announce) as other:
        other.kill()
        before = pauses()

        assert lib.books_reserve(books, 0, 60, LIMIT) == 0

        assert pauses() - before < PATIENCE / 4


def test_a_process_that_ended_but_was_not_waited_for_is_dead(page: Page) -> None:
    books = page.enter()
    with peer(page, hold(60)) as other:
        other.die_unreaped()

        assert lib.books_reserve(books, 0, 100, LIMIT) == 0


def close_descriptor(books: Any) -> None:
    hold(60)(books)
    os.close(books.fd)


def stop(books: Any) -> None:
    hold(60)(books)


@pytest.mark.parametrize(
    ("act", "then"),
    [
        (hold(60), None),
        (close_descriptor, None),
        (stop, signal.SIGSTOP),
    ],
    ids=["running", "its descriptors closed", "stopped"],
)
def test_the_living_keep_what_they_hold(
    page: Page, act: Callable[[Any], object], then: signal.Signals | None
) -> None:
    books = page.enter()
    with peer(page, act) as other:
        if then is not None:
            os.kill(other.pid, then)
        for _ in range(5):
            look_again()
            assert lib.books_reserve(books, 0, 41, LIMIT) == -EDQUOT
        assert page.total() == 60


def test_a_process_without_its_lock_in_another_pid_namespace_is_not_judged(page: Page) -> None:
    books = page.enter()
    with peer(page, close_descriptor) as other:
        other.kill()
        page.words.slots[other.slot].flags ^= 1 << lib.VCUDA_NAMESPACE_SHIFT

        assert lib.books_reserve(books, 0, 41, LIMIT) == -EDQUOT
        assert page.total() == 60


def test_a_pid_that_another_process_has_by_now_is_of_the_dead(page: Page) -> None:
    books = page.enter()
    with peer(page, close_descriptor) as other:
        page.words.slots[other.slot].start_time -= 1000

        assert lib.books_reserve(books, 0, 100, LIMIT) == 0


def test_a_shifted_clock_misleads_about_nobody(page: Page) -> None:
    """In a time namespace all start times are shifted alike."""
    books = page.enter()
    with peer(page, close_descriptor) as other, peer(page, hold(10)) as third:
        for slot in (books.slot, other.slot, third.slot):
            page.words.slots[slot].start_time += 123456
        assert lib.books_reserve(books, 0, 41, LIMIT) == -EDQUOT

        third.kill()
        look_again()

        assert lib.books_reserve(books, 0, 40, LIMIT) == 0
        assert page.total() == 100


def test_a_slot_whose_owner_is_not_known_yet_is_left_alone(page: Page) -> None:
    books = page.enter()
    with peer(page, hold(60)) as other:
        other.kill()
        page.words.inner_pid[other.slot] = 0

        assert lib.books_reserve(books, 0, 41, LIMIT) == -EDQUOT


def test_a_lock_that_is_held_protects_a_slot_whatever_pid_it_names(page: Page) -> None:
    books = page.enter()
    with peer(page, hold(60)) as other:
        page.words.inner_pid[other.slot] = 2**22  # above every pid
        assert lib.books_reserve(books, 0, 41, LIMIT) == -EDQUOT
        assert page.total() == 60


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from(["start", "kill", "free", "take"]), min_size=3, max_size=14))
def test_any_history_of_deaths_leaves_what_the_living_hold(
    tmp_path_factory: pytest.TempPathFactory, history: list[str]
) -> None:
    """The manager frees some of the dead's slots, late or never, and gives them to others."""
    page = open_page(tmp_path_factory.getbasetemp() / "deaths")
    books = page.enter()
    living: list[tuple[Any, Peer]] = []
    dead: list[Peer] = []
    mine = 0
    try:
        for verb in history:
            if verb == "start":
                context = peer(page, hold(7))
                living.append((context, context.__enter__()))
            elif verb == "kill" and living:
                _, gone = living.pop()
                gone.kill()
                dead.append(gone)
            elif verb == "free" and dead:
                lib.region_slot_free(page.words, dead.pop().slot)
            elif verb == "take":
                look_again()
                room = LIMIT - 7 * len(living) - mine
                assert lib.books_reserve(books, 0, room, LIMIT) == 0
                assert lib.books_reserve(books, 0, 1, LIMIT) == -EDQUOT
                mine += room
            if mine > 0:
                lib.books_release(books, 0, mine)
                mine = 0
        assert all(page.words.used[0][other.slot] == 7 for _, other in living)
    finally:
        for context, _ in living:
            context.__exit__(None, None, None)
        os.close(books.fd)
