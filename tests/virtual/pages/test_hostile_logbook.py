"""The manager's view of long launches, in a page that a container may write as it likes."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.virtual.pages.books import Books
from gpumanager.virtual.pages.launch_log import ENTRIES, LONGEST_NS, LaunchLogReader
from gpumanager.virtual.processes import Process


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    with Books.prepare(tmp_path, bytes(16)) as books:
        books.claim(Process(4711, 1))
        yield books


def launch(books: Books, ticket: int, *, ended: int = 0, cost: int = 1) -> None:
    entry = books.words.logbooks[0].of[ticket % ENTRIES]
    entry.begun, entry.ended, entry.cost_ns, entry.charged_ns = 100, ended, cost, cost
    entry.ticket = ticket


def test_a_last_ticket_that_moves_back_and_forth_adds_nothing(books: Books) -> None:
    """It doubled what was open, at each look."""
    logbook = LaunchLogReader(books, 0)
    for ticket in range(65, 129):
        launch(books, ticket)

    for look in range(100):
        books.words.logbooks[0].last = 64 if look % 2 else 128
        flights = logbook.read()

    assert [flight.ticket for flight in flights] == list(range(65, 129))


def test_no_page_makes_a_look_longer(books: Books) -> None:
    """Whatever stands in it: as many launches are open, and as many have ended, as it has room."""
    logbook, made_up = LaunchLogReader(books, 0), random.Random(7)

    for _ in range(500):
        books.words.logbooks[0].last = made_up.choice([0, 64, 65, 128, 1000, 2**63, 2**64 - 1])
        for place in range(ENTRIES):
            launch(books, place + made_up.choice([0, 64, 128, 2**63]), ended=made_up.choice([0, 9]))
        assert len(logbook.read()) <= 2 * ENTRIES


def test_a_launch_costs_no_more_than_one_can(books: Books) -> None:
    logbook = LaunchLogReader(books, 0)
    launch(books, 1, cost=2**64 - 1)
    books.words.logbooks[0].last = 1

    (flight,) = logbook.read()

    assert (flight.cost, flight.charged) == (LONGEST_NS, LONGEST_NS)
