"""Physical memory lives as long as anything keeps it: the core unit against a plain model."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from vcuda_shim._shim import ffi, lib

PAGE = 2 << 20
BASE = 0x7F0000000000


@pytest.fixture
def kept() -> Iterator[Any]:
    physicals: Any = ffi.new("struct physicals *")
    yield physicals
    lib.physicals_clear(physicals)


def gone(physicals: Any, reference: Any) -> list[tuple[int, int]]:
    """Drop a reference; device and bytes of all that is gone by it."""
    first = each = lib.physicals_drop(physicals, reference)
    found = []
    while each != ffi.NULL:
        found.append((each.device, each.bytes))
        each = each.next
    lib.physicals_free(first)
    return found


def create(physicals: Any, handle: int, size: int, device: int = 0) -> Any:
    physical = lib.physicals_new(device, size)
    assert lib.physicals_name(physicals, handle, physical) == 0
    return physical


def place(physicals: Any, address: int, size: int, handle: int) -> None:
    held = lib.physicals_hold(physicals, handle)
    assert lib.physicals_place(physicals, address, size, held) == 0


def unmap(physicals: Any, address: int, size: int) -> list[tuple[int, int]]:
    departure = lib.physicals_leave(physicals, address, size)
    found = []
    while (reference := lib.physicals_left(physicals, departure)) != ffi.NULL:
        found += gone(physicals, reference)
    return found


def release(physicals: Any, handle: int) -> list[tuple[int, int]]:
    reference = lib.physicals_unname(physicals, handle)
    return [] if reference == ffi.NULL else gone(physicals, reference)


def unbind(physicals: Any, holder: Any, device: int, offset: int, size: int) -> list[Any]:
    apart: Any = ffi.new("struct binding **")
    apart[0] = lib.physicals_unbind(physicals, holder, device, offset, size)
    found = []
    while (reference := lib.physicals_unbound(apart)) != ffi.NULL:
        found += gone(physicals, reference)
    return found


def test_memory_that_is_mapped_outlives_its_handle(kept: Any) -> None:
    create(kept, 1, PAGE, device=3)
    place(kept, BASE, PAGE, 1)

    assert release(kept, 1) == []
    assert unmap(kept, BASE, PAGE) == [(3, PAGE)]


def test_memory_with_a_handle_outlives_its_mappings(kept: Any) -> None:
    create(kept, 1, PAGE)
    place(kept, BASE, PAGE, 1)
    place(kept, BASE + PAGE, PAGE, 1)

    assert unmap(kept, BASE, 2 * PAGE) == []
    assert release(kept, 1) == [(0, PAGE)]


def test_a_retained_handle_of_the_same_or_another_value_is_one_release_more(kept: Any) -> None:
    create(kept, 1, PAGE)
    place(kept, BASE, PAGE, 1)
    for handle in (1, 7):
        reference = lib.physicals_hold_at(kept, BASE + PAGE - 1)
        assert lib.physicals_name(kept, handle, reference) == 0

    given_back = [release(kept, handle) for handle in (1, 1)] + [unmap(kept, BASE, PAGE)]

    assert given_back == [[], [], []]
    assert release(kept, 1) == []
    assert release(kept, 7) == [(0, PAGE)]


def test_mappings_that_the_driver_kept_stay(kept: Any) -> None:
    create(kept, 1, PAGE)
    place(kept, BASE, PAGE, 1)
    release(kept, 1)

    departure = lib.physicals_leave(kept, BASE, PAGE)
    assert lib.physicals_hold_at(kept, BASE) == ffi.NULL
    lib.physicals_stay(kept, departure)

    assert lib.physicals_left(kept, departure) == ffi.NULL
    assert unmap(kept, BASE, PAGE) == [(0, PAGE)]


def test_a_mapping_made_where_another_leaves_is_not_taken_for_it(kept: Any) -> None:
    create(kept, 1, PAGE)
    create(kept, 2, 2 * PAGE)
    place(kept, BASE, PAGE, 1)
    departure = lib.physicals_leave(kept, BASE, PAGE)
    place(kept, BASE, PAGE, 2)

    reference = lib.physicals_left(kept, departure)

    assert reference.bytes == PAGE
    gone(kept, reference)
    assert lib.physicals_left(kept, departure) == ffi.NULL
    assert release(kept, 2) == []
    assert unmap(kept, BASE, PAGE) == [(0, 2 * PAGE)]
    assert release(kept, 1) == [(0, PAGE)]


def test_one_unbind_takes_off_all_within_its_range(kept: Any) -> None:
    endpoint = create(kept, 1, 0)
    for handle, offset in ((2, 0), (3, PAGE), (4, 2 * PAGE), (5, 4 * PAGE)):
        create(kept, handle, handle * PAGE)
        lib.physicals_bind(kept, endpoint, offset, PAGE, lib.physicals_hold(kept, handle))
        release(kept, handle)

    assert unbind(kept, endpoint, 0, 0, PAGE // 2) == []
    assert sorted(unbind(kept, endpoint, 0, PAGE, 2 * PAGE)) == [(0, 3 * PAGE), (0, 4 * PAGE)]
    assert sorted(release(kept, 1)) == [(0, 0), (0, 2 * PAGE), (0, 5 * PAGE)]


def test_bindings_that_the_driver_kept_stay(kept: Any) -> None:
    multicast = create(kept, 1, 0)
    create(kept, 2, PAGE)
    for offset in (0, PAGE):
        lib.physicals_bind(kept, multicast, offset, PAGE, lib.physicals_hold(kept, 2))
    release(kept, 2)

    apart = lib.physicals_unbind(kept, multicast, 0, 0, 2 * PAGE)
    assert lib.physicals_unbind(kept, multicast, 0, 0, 2 * PAGE) == ffi.NULL
    lib.physicals_rebind(kept, multicast, apart)

    assert unbind(kept, multicast, 0, 0, 2 * PAGE) == [(0, PAGE)]


def test_an_object_that_is_not_known_is_made_once_and_ends_with_its_handle(kept: Any) -> None:
    create(kept, 2, PAGE)
    first, second = (lib.physicals_ensure(kept, 1) for _ in range(2))
    assert first == second
    lib.physicals_bind(kept, first, 0, PAGE, lib.physicals_hold(kept, 2))

    assert [gone(kept, each) for each in (first, second)] == [[], []]
    assert release(kept, 2) == []
    assert sorted(release(kept, 1)) == [(0, 0), (0, PAGE)]


@pytest.mark.parametrize("last", ["unbind", "object"])
def test_what_is_bound_is_kept_by_the_binding_and_by_that_alone(kept: Any, last: str) -> None:
    multicast = create(kept, 1, 0)
    create(kept, 2, PAGE, device=1)
    held = lib.physicals_hold(kept, 2)
    assert lib.physicals_bind(kept, multicast, 0, PAGE, held) == 0
    assert release(kept, 2) == []

    if last == "unbind":
        assert lib.physicals_unbind(kept, multicast, 0, 0, PAGE) == ffi.NULL
        assert lib.physicals_unbind(kept, multicast, 1, PAGE, PAGE) == ffi.NULL
        assert unbind(kept, multicast, 1, 0, PAGE) == [(1, PAGE)]
        assert release(kept, 1) == [(0, 0)]
    else:
        assert sorted(release(kept, 1)) == [(0, 0), (1, PAGE)]


def test_what_is_bound_to_an_object_that_others_know_stays_charged(kept: Any) -> None:
    multicast = create(kept, 1, 0)
    create(kept, 2, PAGE)
    lib.physicals_bind(kept, multicast, 0, PAGE, lib.physicals_hold(kept, 2))
    lib.physicals_share(kept, multicast)
    release(kept, 2)

    assert release(kept, 1) == [(0, 0)]


def test_what_is_not_known_is_nothing(kept: Any) -> None:
    assert lib.physicals_hold(kept, 5) == ffi.NULL
    assert lib.physicals_hold_at(kept, BASE) == ffi.NULL
    assert lib.physicals_unname(kept, 5) == ffi.NULL
    assert unmap(kept, BASE, PAGE) == []
    assert unmap(kept, 0, 2**64 - 1) == []


@dataclass
class Memory:
    """One physical memory of the model."""

    size: int
    handles: Counter[int] = field(default_factory=Counter)
    places: set[int] = field(default_factory=set)

    @property
    def alive(self) -> bool:
        return bool(+self.handles or self.places)


class Physicals(RuleBasedStateMachine):
    """Handles and places are numbers from small ranges, so that they come again."""

    def __init__(self) -> None:
        super().__init__()
        self.physicals: Any = ffi.new("struct physicals *")
        self.named: dict[int, Memory] = {}
        self.placed: dict[int, Memory] = {}
        self.charged = self.expected = 0
        self.serial = 0

    def _settle(self, memory: Memory, reported: list[tuple[int, int]]) -> None:
        assert reported == ([] if memory.alive else [(0, memory.size)])
        self.charged -= sum(size for _, size in reported)

    @rule(handle=st.integers(1, 8))
    def create(self, handle: int) -> None:
        if handle in self.named:
            return
        self.serial += 1
        memory = Memory(self.serial * PAGE)
        create(self.physicals, handle, memory.size)
        memory.handles[handle] += 1
        self.named[handle] = memory
        self.charged += memory.size

    @rule(handle=st.integers(1, 8))
    def release(self, handle: int) -> None:
        memory = self.named.get(handle)
        if memory is None:
            assert release(self.physicals, handle) == []
            return
        memory.handles[handle] -= 1
        if memory.handles[handle] == 0:
            del self.named[handle]
        self._settle(memory, release(self.physicals, handle))

    @rule(handle=st.integers(1, 8))
    def release_refused(self, handle: int) -> None:
        reference = lib.physicals_unname(self.physicals, handle)
        if reference != ffi.NULL:
            assert lib.physicals_name(self.physicals, handle, reference) == 0

    @rule(handle=st.integers(1, 8), place_=st.integers(0, 9))
    def map(self, handle: int, place_: int) -> None:
        if handle not in self.named or place_ in self.placed:
            return
        place(self.physicals, BASE + place_ * PAGE, PAGE, handle)
        self.placed[place_] = self.named[handle]
        self.named[handle].places.add(place_)

    @rule(first=st.integers(0, 9), count=st.integers(1, 5), refused=st.booleans())
    def unmap(self, first: int, count: int, *, refused: bool) -> None:
        range_ = BASE + first * PAGE, count * PAGE
        if refused:
            lib.physicals_stay(self.physicals, lib.physicals_leave(self.physicals, *range_))
            return
        departure = lib.physicals_leave(self.physicals, *range_)
        for place_ in sorted(place_ for place_ in self.placed if first <= place_ < first + count):
            memory = self.placed.pop(place_)
            memory.places.remove(place_)
            reference = lib.physicals_left(self.physicals, departure)
            assert reference.bytes == memory.size
            self._settle(memory, gone(self.physicals, reference))
        assert lib.physicals_left(self.physicals, departure) == ffi.NULL

    @rule(place_=st.integers(0, 9), handle=st.integers(1, 8), within=st.integers(0, PAGE - 1))
    def retain(self, place_: int, handle: int, within: int) -> None:
        reference = lib.physicals_hold_at(self.physicals, BASE + place_ * PAGE + within)
        memory = self.placed.get(place_)
        if memory is None:
            assert reference == ffi.NULL
        elif self.named.get(handle) not in (None, memory):
            self._settle(memory, gone(self.physicals, reference))
        else:
            assert lib.physicals_name(self.physicals, handle, reference) == 0
            self.named[handle] = memory
            memory.handles[handle] += 1

    @invariant()
    def what_lives_is_charged(self) -> None:
        living = {id(each): each for each in [*self.named.values(), *self.placed.values()]}
        assert self.charged == sum(each.size for each in living.values())
        assert self.physicals.count == len(self.placed)

    def teardown(self) -> None:
        self.unmap(first=0, count=10, refused=False)
        for handle in [*self.named]:
            while handle in self.named:
                self.release(handle)
        assert self.charged == 0
        lib.physicals_clear(self.physicals)


TestPhysicals = Physicals.TestCase
