"""The meters of an allocation as readings; what processes write is written as the shim does."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.compute.values import SECOND
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB, Bytes
from gpumanager.virtual.pages.books import Books
from gpumanager.virtual.pages.meters import Meters, People
from gpumanager.virtual.pages.sealed_memory import LINK
from gpumanager.virtual.processes import Process
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim._shim import lib

LIMITS = [Limit(GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0"), Bytes(GIB), 30, 30)]
NOW = 1000 * SECOND
NAME = AllocationID("a")
PROCESS = Process(4711, 1)
PEOPLE = People(frozenset({PROCESS.pid}))


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    with Books.prepare(tmp_path, bytes(16)) as books:
        yield books


def resident() -> int:
    """Bytes of the mapped books that lie in our memory."""
    found = re.search(
        rf"{re.escape(LINK)}\n.*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.DOTALL
    )
    assert found is not None
    return int(found[1]) * 1024


def launch(books: Books, begun: int) -> None:
    """A long one, paid for and logged."""
    books.words.meters[0].charged_ns += 5
    books.words.meters[0].launches += 1
    lib.logbook_open(books.words.logbooks + 0, 0, begun, 5)


def begun(meters: Meters) -> list[int]:
    (reading,) = meters.read(PEOPLE, NOW)
    return [flight.begun for flight in reading.flights]


def test_where_nobody_has_launched_one_page_of_the_books_is_in_memory(books: Books) -> None:
    meters = Meters(NAME, LIMITS, books)

    for _ in range(3):
        (reading,) = meters.read(PEOPLE, NOW)

    assert (reading.charged_ns, reading.long_ns, reading.flights) == (0, 0, ())
    assert resident() == 4096


def test_the_first_launch_of_all_is_told_of(books: Books) -> None:
    meters = Meters(NAME, LIMITS, books)
    assert begun(meters) == []
    books.claim(PROCESS)

    launch(books, begun=100)

    assert begun(meters) == [100]
    assert meters.read(PEOPLE, NOW)[0].long_ns == 5


def test_launches_from_before_the_limits_changed_are_no_news(books: Books) -> None:
    books.claim(PROCESS)
    launch(books, begun=100)
    meters = Meters(NAME, LIMITS, books)
    assert begun(meters) == []

    launch(books, begun=200)

    assert begun(meters) == [200]
