"""Lists of processes against the books, compared with the same done on dicts."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.limits.processes import Process
from vcuda_shim._shim import ffi, lib

SLOTS = lib.VCUDA_SLOTS
ENTRY = ffi.new("struct residents_layout *", {"size": 24, "pid": 0, "memory": 8, "has_memory": 1})
FOREIGN = st.integers(50_000, 50_010)


@dataclass(frozen=True, slots=True)
class Resident:
    """A process of the container. inner: what it calls itself, 0 if it never said."""

    host: int
    inner: int
    held: int

    @property
    def shown(self) -> int:
        return self.inner or self.host


@st.composite
def containers(draw: st.DrawFn) -> list[Resident]:
    hosts = draw(st.lists(st.integers(1000, 1020), unique=True, max_size=6))
    inners = draw(st.lists(st.integers(1, 20), unique=True, min_size=6, max_size=6))
    held = st.integers(0, 3).map(lambda mebibytes: mebibytes << 20)
    unsaid = st.booleans()
    return [
        Resident(host, 0 if draw(unsaid) else inner, draw(held))
        for host, inner in zip(hosts, inners, strict=False)
    ]


def books_of(container: list[Resident]) -> Any:
    books: Any = ffi.new("struct vcuda_books *")
    for resident in container:
        process = Process(resident.host, 1)
        slot = lib.region_slot_claim(books, process.pid, process.start_time, resident.inner)
        books.used[0][slot] = resident.held
    return books


class Sifted:
    """The list as the driver gives it, which says 5 bytes of each; keeps alive what C points to."""

    def __init__(self, container: list[Resident], pids: list[int], *, device: int = 0) -> None:
        self._books = books_of(container)
        self._room: Any = ffi.new("uint64_t[]", 3 * (len(pids) + SLOTS))
        for index, pid in enumerate(pids):
            self._room[3 * index : 3 * index + 3] = [pid, 5, index]
        start = {"books": self._books, "device": device, "layout": ENTRY, "list": self._room}
        self._residents: Any = ffi.new("struct residents *", {**start, "count": len(pids)})
        lib.residents_keep(self._residents)

    def add_hidden(self) -> None:
        lib.residents_add_hidden(self._residents)

    def rows(self) -> list[tuple[int, int, int]]:
        """Pid, bytes, and the place in the driver's list."""
        flat = list(self._room[0 : 3 * self._residents.count])
        return [(flat[n] & 0xFFFFFFFF, flat[n + 1], flat[n + 2]) for n in range(0, len(flat), 3)]


@given(containers(), st.data())
def test_of_a_list_by_host_pids_the_containers_own_stay(
    container: list[Resident], data: st.DataObject
) -> None:
    known = {resident.host: resident for resident in container}
    pids = data.draw(st.lists(st.sampled_from(sorted(known)) if known else FOREIGN, max_size=8))
    pids += [50_000, *data.draw(st.lists(FOREIGN))]

    sifted = Sifted(container, pids)

    assert sifted.rows() == [
        (known[pid].shown, known[pid].held, place) for place, pid in enumerate(pids) if pid in known
    ]


@given(containers(), st.data())
def test_of_a_translated_list_nobody_is_dropped(
    container: list[Resident], data: st.DataObject
) -> None:
    known = {resident.shown: resident for resident in container}
    pids = data.draw(st.lists(st.sampled_from(sorted(known)), max_size=8)) if known else []

    sifted = Sifted(container, pids)

    assert sifted.rows() == [(pid, known[pid].held, n) for n, pid in enumerate(pids)]


@given(containers(), st.data())
def test_after_the_hidden_are_added_everybody_who_holds_memory_is_listed_once(
    container: list[Resident], data: st.DataObject
) -> None:
    some = [resident for resident in container if data.draw(st.booleans())]
    sifted = Sifted(container, [*(each.host for each in some), 50_000])

    sifted.add_hidden()

    wanted = {each.shown: each.held for each in container if each in some or each.held > 0}
    listed = [(pid, held) for pid, held, _ in sifted.rows()]
    assert sorted(listed) == sorted(wanted.items())


@given(containers(), st.lists(FOREIGN))
def test_of_a_gpu_that_is_not_granted_the_drivers_figures_stand_and_nobody_is_added(
    container: list[Resident], foreign: list[int]
) -> None:
    pids = [*foreign, 50_000, *(resident.host for resident in container)]
    sifted = Sifted(container, pids, device=-1)

    sifted.add_hidden()

    shown = [(pid, held) for pid, held, _ in sifted.rows()]
    assert shown == [(resident.shown, 5) for resident in container]


@given(containers())
def test_the_driver_is_asked_by_the_name_it_uses(container: list[Resident]) -> None:
    books = books_of(container)

    def asked(pid: int, naming: int) -> int:
        return int(lib.residents_pid_of(books, pid, naming))

    for resident in container:
        assert asked(resident.shown, lib.RESIDENTS_BY_HOST) == resident.host
        assert asked(resident.shown, lib.RESIDENTS_BY_CALLER) == resident.shown
        if resident.inner:
            assert asked(resident.host, lib.RESIDENTS_BY_HOST) == 0
    assert asked(50_000, lib.RESIDENTS_BY_HOST) == asked(0, lib.RESIDENTS_BY_HOST) == 0
