"""Pages that small allocations share: the shim's idea of them, against drivers that divide them
differently."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpumanager.units import KIB, MIB
from vcuda_shim._shim import ffi, lib

PAGE = 2 * MIB
PLAIN, MANAGED, ARRAY = lib.POINTER_PLAIN, lib.POINTER_MANAGED, lib.POINTER_ARRAY


@pytest.fixture
def slabs() -> Iterator[Any]:
    table: Any = ffi.new("struct slabs *")
    yield table
    lib.slabs_clear(table)


def key(size: int, kind: int = PLAIN, device: int = 0) -> Any:
    return (device, kind, size)


def begun(slabs: Any, of: Any) -> int:
    """Of a request under way, how many pages are charged for it."""
    if lib.slabs_claim(slabs, of):
        return 0
    return 1 - int(lib.slabs_pay(slabs, of))


def entered(slabs: Any, of: Any, address: int) -> int:
    """The driver has given it out: how many pages are charged more, or fewer."""
    pages = ffi.new("int *")
    assert lib.slabs_enter(slabs, of, address, pages) == 0
    return int(pages[0])


def taken(slabs: Any, of: Any, address: int) -> int:
    return begun(slabs, of) + entered(slabs, of, address)


class Driver:
    """One that puts what is small into pages; how, `place` says: bytes asked to bytes taken.

    apart: only such of one size share one.
    """

    def __init__(self, place: Callable[[int], int], *, apart: bool) -> None:
        self._place, self._apart = place, apart
        self._pages: dict[int, tuple[int, set[int]]] = {}
        self._sizes: dict[int, int] = {}
        self._next = 0x7F0000000000

    @property
    def pages(self) -> int:
        return len(self._pages)

    def allocate(self, size: int) -> int:
        place = self._place(size)
        for page, (of, taken) in self._pages.items():
            if of in (place, 0):
                for address in range(page, page + PAGE - place + 1, place):
                    if not self._overlaps(address, place, taken):
                        return self._give(page, address, place)
        page = self._next
        self._next += PAGE
        self._pages[page] = (place if self._apart else 0, set())
        return self._give(page, page, place)

    def free(self, address: int) -> None:
        page = address // PAGE * PAGE
        self._pages[page][1].discard(address)
        del self._sizes[address]
        if not self._pages[page][1]:
            del self._pages[page]

    def _overlaps(self, address: int, place: int, taken: set[int]) -> bool:
        return any(
            other < address + place and address < other + self._sizes[other] for other in taken
        )

    def _give(self, page: int, address: int, place: int) -> int:
        self._pages[page][1].add(address)
        self._sizes[address] = place
        return address


def power(size: int) -> int:
    place = 4 * KIB
    while place < size:
        place *= 2
    return place


DRIVERS = {
    "powers of two, apart": lambda: Driver(power, apart=True),
    "powers of two, together": lambda: Driver(power, apart=False),
    "rounded up to 64 KiB": lambda: Driver(
        lambda size: -(-size // (64 * KIB)) * 64 * KIB, apart=False
    ),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_as_many_pages_are_charged_as_the_driver_has_however_it_divides_them(
    slabs: Any, name: str
) -> None:
    driver, choice = DRIVERS[name](), random.Random(7)
    held: list[tuple[int, int]] = []
    charged = 0
    for _ in range(1500):
        if held and choice.random() < 0.45:
            size, address = held.pop(choice.randrange(len(held)))
            driver.free(address)
            charged -= lib.slabs_leave(slabs, key(size), address)
        else:
            size = choice.choice([1, 5000, 70 * KIB, 300 * KIB, 600 * KIB, MIB])
            address = driver.allocate(size)
            charged += taken(slabs, key(size), address)
            held.append((size, address))
        assert charged == driver.pages
    for size, address in held:
        charged -= lib.slabs_leave(slabs, key(size), address)
    assert charged == 0


def test_no_page_is_paid_for_late_where_sizes_have_pages_of_their_own(slabs: Any) -> None:
    driver, choice = Driver(power, apart=True), random.Random(8)
    held: list[tuple[int, int]] = []
    charged = 0
    for _ in range(1000):
        if held and choice.random() < 0.45:
            size, address = held.pop(choice.randrange(len(held)))
            driver.free(address)
            charged -= lib.slabs_leave(slabs, key(size), address)
        else:
            size = choice.choice([1, 70 * KIB, 300 * KIB, MIB])
            charged += begun(slabs, key(size))
            address = driver.allocate(size)
            assert charged == driver.pages
            assert entered(slabs, key(size), address) == 0
            held.append((size, address))


class Threads:
    """Of one process: each is between two steps of a request or a free, in any order.

    charged: pages in the books. It never ends while another one's call is under way.
    """

    def __init__(self, slabs: Any, seed: int) -> None:
        self.slabs, self.choice = slabs, random.Random(seed)
        self.driver = Driver(power, apart=True)
        self.charged = 0
        self.held: list[tuple[int, int]] = []
        self.under_way: list[Iterator[None]] = []

    def request(self) -> Iterator[None]:
        size = self.choice.choice([300 * KIB, MIB])
        self.charged += begun(self.slabs, key(size))
        yield
        if self.choice.random() < 0.1:
            self.charged -= lib.slabs_give_up(self.slabs, key(size))
            return
        address = self.driver.allocate(size)
        yield
        late = entered(self.slabs, key(size), address)
        assert late <= 0
        self.charged += late
        self.held.append((size, address))

    def free(self) -> Iterator[None]:
        size, address = self.held.pop(self.choice.randrange(len(self.held)))
        slab = lib.slabs_leave_begin(self.slabs, key(size), address)
        yield
        self.driver.free(address)
        yield
        self.charged -= lib.slabs_leave_end(self.slabs, key(size), slab)

    def step(self) -> None:
        if len(self.under_way) < 3:
            frees = self.held and self.choice.random() < 0.5
            self.under_way.append(self.free() if frees else self.request())
            next(self.under_way[-1])
        one = self.choice.choice(self.under_way)
        if next(one, self) is self:
            self.under_way.remove(one)

    def finish(self) -> None:
        while self.under_way:
            one = self.choice.choice(self.under_way)
            if next(one, self) is self:
                self.under_way.remove(one)


@pytest.mark.parametrize("seed", range(20))
def test_threads_that_share_pages_never_have_one_that_is_not_charged(slabs: Any, seed: int) -> None:
    threads = Threads(slabs, seed)

    for _ in range(500):
        threads.step()
        assert threads.charged >= threads.driver.pages
    threads.finish()

    assert threads.charged == threads.driver.pages


def test_a_place_is_claimed_once(slabs: Any) -> None:
    taken(slabs, key(MIB), 0x7F0000000000)

    assert [bool(lib.slabs_claim(slabs, key(MIB))) for _ in range(2)] == [True, False]


def test_kinds_and_devices_have_room_of_their_own(slabs: Any) -> None:
    taken(slabs, key(5000), 0x7F0000000000)

    assert lib.slabs_claim(slabs, key(5000))
    assert not lib.slabs_claim(slabs, key(5000, MANAGED))
    assert not lib.slabs_claim(slabs, key(5000, device=1))
    assert not lib.slabs_claim(slabs, key(50000))


def test_arrays_are_charged_the_pages_they_may_still_lie_in(slabs: Any) -> None:
    small = key(512 * KIB, ARRAY)

    came = [taken(slabs, small, 0) for _ in range(9)]
    gone = [lib.slabs_leave(slabs, small, 0) for _ in range(9)]

    assert came == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert gone == [0, 0, 0, 0, 0, 0, 1, 1, 1]


def test_pages_of_arrays_that_others_may_lie_in_are_given_back_as_unsure(slabs: Any) -> None:
    """Of nine arrays in three pages, all three pages may be of use to the last three."""
    small, unsure = key(512 * KIB, ARRAY), ffi.new("bool *")
    for _ in range(9):
        taken(slabs, small, 0)

    gone = [(lib.slabs_leave_array(slabs, small, unsure), unsure[0]) for _ in range(9)]

    assert gone == [(0, False)] * 6 + [(1, True), (1, True), (1, False)]


def test_of_two_threads_that_pay_for_a_page_of_arrays_at_once_one_has_it_back(slabs: Any) -> None:
    small = key(512 * KIB, ARRAY)

    claimed = [bool(lib.slabs_claim(slabs, small)) for _ in range(2)]
    back = [lib.slabs_pay(slabs, small) for _ in range(2)]

    assert claimed == [False, False]
    assert back == [0, 1]


def test_what_was_never_given_out_leaves_nothing(slabs: Any) -> None:
    assert not lib.slabs_leave(slabs, key(1), 0x7F0000000000)
