"""Long launches of containers that share a GPU, on a clock of the test."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute import occupancy_timeline as timeline
from gpumanager.compute.long_launches import INTERVALS, ChargedReading, LongLaunches
from gpumanager.compute.occupancy_timeline import Interval, Window, occupancy_timeline
from gpumanager.compute.values import SECOND, Flight, Holder, Reading
from gpumanager.gpu.values import GpuUUID

MS = 1_000_000
TICK = 100 * MS
START = 50 * SECOND


@pytest.fixture(autouse=True)
def slices_of_two_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples here have round numbers."""
    monkeypatch.setattr(timeline, "SLICE_NS", 2 * MS)
    monkeypatch.setattr(timeline, "FIRST_NS", MS)


def interval(name: str, begun: int, ended: int, slot: int = 0, *, fresh: bool = False) -> Interval:
    """Times in ms."""
    return Interval(((name, 0), slot), begun * MS, ended * MS, cost=0, charged=0, fresh=fresh)


def had(intervals: list[Interval], *windows: Window) -> list[float]:
    """In ms."""
    what = occupancy_timeline(intervals, windows)
    return [what.of(one) / MS for one in intervals]


def window(since: int, until: int, paced: str = "", /, **took: int) -> Window:
    """paced: these waited for the limiter all the time."""
    amounts = {(name, 0): ms * MS for name, ms in took.items()}
    waited = {(name, 0): (until - since) * MS for name in paced}
    return Window(since * MS, until * MS, amounts, waited)


def test_alone_a_launch_has_all_the_time_it_was_there() -> None:
    assert had([interval("a", 10, 30)]) == [20]


@pytest.mark.parametrize("waited", [0, 2 * MS], ids=["never held back", "hardly held back"])
def test_one_launch_after_the_other_costs_a_long_one_two_switches_each(waited: int) -> None:
    rounds, turn, switching = 10, 50_000, 0.05
    switch = round(2 * MS * switching / (1 - switching))
    there = rounds * (2 * MS + turn + 2 * switch)
    long = Interval((("a", 0), 0), 0, there, cost=there, charged=0)
    b = ("b", 0)
    busy = Window(0, there, {b: rounds * turn}, {b: waited} if waited else {}, {b: turn})

    what = occupancy_timeline([long], [busy], switching)

    assert what.of(long) == pytest.approx(rounds * 2 * MS, rel=0.005)


def test_who_waits_for_each_launch_had_its_turns_beside_a_long_one_whatever_was_left_over() -> None:
    long, b = Interval((("a", 0), 0), 0, 50 * MS, cost=50 * MS, charged=0), ("b", 0)
    took = {b: 50 * MS}

    what = occupancy_timeline([long], [Window(0, 100 * MS, took, {}, {b: 0.1 * MS})])

    assert what.of(long) == pytest.approx(50 * MS * 2 / 2.1)


def test_launches_of_several_processes_divide_the_time_they_were_there_together() -> None:
    intervals = [interval("a", 0, 40), interval("b", 20, 60), interval("c", 20, 30)]

    assert had(intervals) == pytest.approx([20 + 10 / 3 + 5, 10 / 3 + 5 + 20, 10 / 3])


def test_what_is_lost_while_slices_go_round_nobody_had() -> None:
    intervals = [interval("a", 0, 40), interval("b", 20, 60)]

    what = occupancy_timeline(intervals, [], switching=0.05)

    assert [what.of(one) / MS for one in intervals] == pytest.approx([29.5, 29.5])


def test_who_is_alone_loses_nothing_by_switching() -> None:
    (only,) = [interval("a", 10, 30)]

    assert occupancy_timeline([only], [], switching=0.05).of(only) == 20 * MS


def test_what_is_lost_beside_short_launches_is_not_the_long_ones() -> None:
    long = interval("a", 0, 60)

    what = occupancy_timeline([long], [window(0, 60, "b", b=20)], switching=0.05)

    assert what.of(long) / MS == pytest.approx(37)


@pytest.mark.parametrize("waited", [0, 4, 13, 22, 100])
def test_who_hardly_waited_for_the_limiter_took_the_time_left_over_first(
    waited: int,
) -> None:
    """Of 45 ms, when 40 were left over: so it takes all of those, unless it waited then."""
    most = Window(0, 100 * MS, {("b", 0): 45 * MS}, {("b", 0): waited * MS})
    even = 45 * 60 / 100

    assert had([interval("a", 0, 60)], most) == pytest.approx([60 - min(5 + waited, even)])


def test_two_launches_of_one_process_count_as_one() -> None:
    intervals = [
        interval("a", 0, 30),
        interval("b", 0, 15),
        interval("b", 15, 30),
        interval("b", 10, 30, slot=1),
    ]

    assert had(intervals)[0] == pytest.approx(10 / 2 + 20 / 3)


def test_what_short_launches_took_of_the_time_is_not_had() -> None:
    assert had([interval("a", 0, 100)], window(0, 100, b=30)) == [70]


def test_who_is_not_made_to_wait_takes_what_is_left_over_first() -> None:
    """20 ms could not have been taken at another time."""
    assert had([interval("a", 0, 60)], window(0, 100, b=30, c=30)) == [60 - 20]


def test_who_is_made_to_wait_takes_its_share_evenly() -> None:
    assert had([interval("a", 0, 60)], window(0, 100, "b", b=30)) == pytest.approx([60 - 18])


def test_beside_one_that_takes_its_share_evenly_another_takes_what_is_left_over() -> None:
    """12 ms of b's, so that 28 of the 40 ms are left for c."""
    found = had([interval("a", 0, 60)], window(0, 100, "b", b=30, c=30))

    assert found == pytest.approx([60 - 18 - 2])


def test_short_launches_have_no_more_than_their_slices_while_a_long_one_is_there() -> None:
    found = had([interval("a", 0, 60), interval("d", 0, 60)], window(0, 60, "bc", b=30, c=30))

    assert found == pytest.approx([15, 15])


def test_who_comes_has_its_first_slice_before_others() -> None:
    intervals = [interval("a", 0, 40), interval("b", 20, 40, fresh=True)]

    assert had(intervals) == pytest.approx([20 + 19 / 2, 1 + 19 / 2])


def test_short_launches_wait_for_the_first_slice_of_a_long_one_and_catch_up_when_it_is_gone() -> (
    None
):
    found = had([interval("a", 0, 51, fresh=True)], window(0, 100, "b", b=20))

    assert found == pytest.approx([51 - 10])


def test_what_a_container_took_by_short_launches_of_its_own_is_not_taken_from_its_long_one() -> (
    None
):
    assert had([interval("a", 0, 60)], window(0, 100, a=40)) == [60]


intervals = st.tuples(st.integers(0, 200), st.integers(1, 100))


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), intervals), min_size=1, max_size=12),
    st.lists(st.integers(0, 25), min_size=4, max_size=4),
)
def test_together_they_have_no_more_than_the_time_and_nobody_less_than_nothing(
    made: list[tuple[str, tuple[int, int]]], shorts: list[int]
) -> None:
    ends: dict[str, int] = {}
    intervals = []
    for name, (gap, length) in made:  # those of one process come one after another
        begun = ends.get(name, 0) + gap
        ends[name] = begun + length
        intervals.append(interval(name, begun, ends[name]))
    last = max(ends.values())

    found = had(intervals, window(0, last, "eg", **dict(zip("efgh", shorts, strict=True))))

    assert sum(found) <= last + 1e-6
    assert all(
        0 <= each <= (one.ended - one.begun) / MS + 1e-6
        for each, one in zip(found, intervals, strict=True)
    )


@dataclass
class Container:
    """What its pages say, and what it has been told."""

    name: str
    flights: list[Flight] = field(default_factory=list)
    charged: int = 0
    long: int = 0
    owed: int = 0
    waits: int = 0

    @property
    def holder(self) -> Holder:
        return (self.name, 0)

    def _ticket(self) -> int:
        return self.flights[-1].ticket + 1 if self.flights else 1

    def launch(self, at: int) -> None:
        self.flights.append(Flight(self._ticket(), 0, START + at * MS, 0, 0, 0))

    def end(self, at: int, charged: int | None = None, cost: int | None = None) -> None:
        """The last one, which began when it was launched; by default it pays for all the time."""
        last = self.flights[-1]
        ended = START + at * MS
        cost = ended - last.begun if cost is None else cost * MS
        paid = cost if charged is None else charged * MS
        self.flights[-1] = replace(last, ended=ended, cost=cost, charged=paid)
        self.charged += paid
        self.long += paid

    def charged_reading(self) -> ChargedReading:
        reading = Reading(
            holder=self.holder,
            gpu=GpuUUID("g"),
            guarantee=0.5,
            ceiling=0.5,
            pids=frozenset(),
            paid_until=0,
            charged_ns=self.charged + self.owed,
            retired_ns=self.charged + self.owed,
            waits=self.waits,
            flights=tuple(self.flights),
            long_ns=self.long,
        )
        return ChargedReading(reading, self.owed)


class Node:
    def __init__(self, *containers: Container) -> None:
        self.containers = containers
        self.overlap = LongLaunches()
        self.look(0)

    def look(self, at: int) -> dict[str, int]:
        """What each is to pay, in microseconds; none that has to pay nothing."""
        now = START + at * MS
        found = self.overlap.update(now, [one.charged_reading() for one in self.containers])
        debts = {who[0]: sum(wrong.amount for wrong in wrongs) for who, wrongs in found.items()}
        for one in self.containers:
            one.owed += debts.get(one.name, 0)
        return {name: round(debt / 1000) for name, debt in debts.items()}


def test_what_was_charged_for_the_time_of_neighbours_is_given_back_once() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    a.launch(0)
    b.launch(0)
    a.end(40)
    b.end(40)

    assert node.look(100) == {"a": -20_000, "b": -20_000}
    assert node.look(200) == {}
    assert (node.overlap.ratio(a.holder), node.overlap.ratio(b.holder)) == (0.5, 0.5)


def test_a_launch_that_has_not_ended_counts_as_there() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    b.launch(0)
    a.launch(60)
    a.end(100)

    assert node.look(100) == {"a": -19_500}


def test_when_it_turns_out_to_have_ended_earlier_what_was_given_back_is_charged_again() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    b.launch(0)
    a.launch(60)
    a.end(100)
    node.look(100)
    b.end(70)

    assert node.look(200) == {"a": 15_000, "b": -5_500}
    assert node.look(300) == {}


def test_when_it_turns_out_so_long_after_nothing_is_charged_again() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    b.launch(0)
    a.launch(60)
    a.end(100)
    for at in range(100, 1300, 100):
        node.look(at)
    b.end(70)

    assert node.look(1300) == {"b": -5_500}


def test_what_was_charged_too_little_is_charged() -> None:
    a = Container("a")
    node = Node(a)
    a.launch(0)
    a.end(40, charged=10)

    assert node.look(100) == {"a": 30_000}


@pytest.mark.parametrize(("there", "debts"), [(5, {}), (40, {"a": 19_000})])
def test_one_that_passes_for_short_pays_for_more_than_a_slice_might_explain(
    there: int, debts: dict[str, int]
) -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    b.launch(0)
    a.launch(0)
    a.end(there, charged=1, cost=1)

    assert node.look(100) == debts
    assert node.overlap.ratio(a.holder) == 1.0


def test_debts_are_no_sign_of_short_launches() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    b.owed = 50 * MS
    a.launch(0)
    a.end(100)

    assert node.look(100) == {}


@pytest.mark.parametrize(("waits", "taken"), [(0, 15), (5 * MS, 20), (100 * MS, 30)])
def test_of_short_launches_the_limiter_tells_how_they_went(waits: int, taken: int) -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    a.launch(0)
    a.end(100 - 25)
    node.look(75)
    a.launch(75)
    b.charged, b.waits = 40 * MS, waits
    a.end(150)

    assert node.look(175) == {"a": -taken * 1000}


def test_a_launch_behind_another_of_its_process_has_no_first_slice() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    a.launch(0)
    a.end(20)
    node.look(20)
    a.launch(20)
    b.launch(20)
    a.end(60)
    b.end(60)

    assert node.look(100) == {"a": -20_500, "b": -19_500}


def test_the_ratio_follows_the_last_launches() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    a.launch(0)
    b.launch(0)
    a.end(40)
    b.end(40)
    node.look(100)
    a.launch(900)
    a.end(920)
    node.look(1000)

    assert node.overlap.ratio(a.holder) == 1.0


def test_nobody_is_given_back_more_than_can_have_been_charged() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    a.launch(0)
    b.launch(0)
    a.end(40, charged=1_000_000)
    b.end(40)

    assert node.look(100)["a"] == -140_000


def test_who_comes_with_old_launches_is_not_charged_for_them() -> None:
    a = Container("a")
    a.launch(0)
    a.end(40, charged=10)
    node = Node(a)

    assert node.look(100) == {}


def test_what_has_been_told_of_is_not_kept_for_good() -> None:
    a, b = Container("a"), Container("b")
    node = Node(a, b)
    b.launch(0)  # and never ends
    for at in range(100, 10_000, 100):
        a.launch(at - 60)
        a.end(at - 20)
        a.flights = a.flights[-8:]
        node.look(at)

    kept = len(node.overlap._ended), len(node.overlap._windows)
    assert max(kept) < 50


def test_a_container_that_logs_thousands_of_launches_does_not_make_looks_longer() -> None:
    """It forges 63 of them a look, by as many processes, beside one that does not end."""
    overlap, now = LongLaunches(), 100 * SECOND
    for look in range(60):
        now += SECOND // 10
        going = Flight(10**9, 63, now - 29 * SECOND, 0, SECOND, SECOND)
        ended = [
            Flight(64 * look + slot, slot, slot, now - slot, 30 * SECOND, 30 * SECOND)
            for slot in range(63)
        ]
        reading = Reading(
            ("hostile", 0),
            GpuUUID("GPU-0"),
            guarantee=0.3,
            ceiling=0.3,
            pids=frozenset(),
            paid_until=now,
            charged_ns=0,
            retired_ns=0,
            waits=0,
            flights=(going, *ended),
        )
        overlap.update(now, [ChargedReading(reading)])

    assert len(overlap._ended) <= INTERVALS
    assert min(interval.begun for interval in overlap._ended) >= now - 60 * SECOND
