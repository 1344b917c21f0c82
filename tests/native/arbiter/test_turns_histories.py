"""One GPU by single steps, and in 4,000 random histories: whatever containers say, decisions keep
their promises."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from vcuda_shim import _arbiter

ffi: Any = _arbiter.ffi
lib: Any = _arbiter.lib

MS, SECOND = 1_000_000, 1_000_000_000
HISTORIES, STEPS, MEMBERS = 4_000, 40, 4
LONGEST_WAIT = 200 * MS


def granted(gpu: object) -> list[int]:
    return [at for at in range(MEMBERS) if gpu.members[at].told.granted]  # type: ignore[attr-defined]


def play(chance: random.Random, *, honest: bool) -> None:
    """Member 0 waits whenever it has no turn, and works when it has; the others do anything."""
    gpu = ffi.new("struct turns_gpu *")
    now = SECOND
    lib.turns_init(gpu, lib.turns_rules(), now)
    weights = [chance.uniform(0.02, 0.5) for _ in range(MEMBERS)]
    for at, weight in enumerate(weights):
        ceiling = 1 if at == 0 or chance.random() < 0.7 else weight
        assert lib.turns_join(gpu, weight, ceiling) == at
    begun = waits_since = now
    for _ in range(STEPS):
        before, look = now, int(lib.turns_step(gpu, now))
        holders = granted(gpu)
        assert holders == ([] if gpu.holder == lib.TURNS_NOBODY else [gpu.holder])
        assert look > now
        if 0 in holders:
            waits_since = now
        now = min(look, now + chance.choice([5000, MS // 10, MS, 10 * MS, 50 * MS]))
        assert now - waits_since < LONGEST_WAIT
        for at in range(MEMBERS):
            mine, seen = at in holders, gpu.members[at].seen
            span = now - before
            busy = mine and (at == 0 or chance.random() < 0.8)
            if not honest and at > 0:
                busy = chance.random() < 0.6
            seen.live = chance.randint(1, 3) if busy else 0
            seen.waiting = (not mine) if at == 0 else chance.random() < 0.7
            seen.work.all_ns = busy * min(seen.live, 3) * span * chance.random()
            seen.stalled_ns = seen.work.all_ns * (not honest and chance.random() < 0.2)
            seen.longest_ns = chance.choice([0, MS, 100 * MS])
            if at == 0:
                seen.work.all_ns = min(seen.work.all_ns, span)
    lib.turns_step(gpu, now)
    if honest:
        charged = sum(member.charged_ns for member in gpu.members)
        assert charged <= (now - begun) * 1.000001


def test_random_histories_of_honest_containers() -> None:
    chance = random.Random(20)
    for _ in range(HISTORIES // 2):
        play(chance, honest=True)


def test_random_histories_beside_forged_hints() -> None:
    chance = random.Random(21)
    for _ in range(HISTORIES // 2):
        play(chance, honest=False)


def observed(begin: int, *reports: Mapping[str, int]) -> list[Any]:
    """What is made of one process's reports, 2 ms apart, with progress at each if none is said."""
    rules = ffi.new("struct turns_rules *", lib.turns_rules())
    process, found = ffi.new("struct turns_process *"), []
    for now, fields in zip(range(begin, begin + SECOND, 2 * MS), reports, strict=False):
        report = ffi.new("struct turns_report *", {"progress_ns": now, **fields})
        found.append(ffi.new("struct turns_seen *"))
        lib.turns_observe(found[-1], process, report, rules, now - 2 * MS, now)
    return found


def since(ns: int, busy: int = 0) -> Mapping[str, int]:
    """It has work in flight since then, and had some before for so long."""
    return {"since_ns": ns, "busy_ns": busy}


BUSY = 3_950_000
REPORTS = [
    pytest.param(
        10 * MS,
        [since(10 * MS), since(10 * MS), since(10 * MS, 4 * MS), since(0, 4 * MS)],
        [0, 2 * MS, 2 * MS, 0],
        id="a report that is torn is charged once",
    ),
    pytest.param(  # of 4 ms that were charged it had work for 3.95; then for 2 ms more
        10 * MS,
        [*[since(10 * MS)] * 3, since(0, BUSY), *[since(16 * MS, BUSY)] * 2],
        [0, 2 * MS, 2 * MS, 0, 2 * MS - 50_000, 2 * MS],
        id="an end that is dated back is refunded when work begins again",
    ),
    pytest.param(
        SECOND,
        [since(0, busy) for busy in (0, 2**63, 0, MS, 2 * MS)],
        [0, 2 * MS, 0, MS, MS],
        id="a process that once claimed all time is charged again afterwards",
    ),
]


@pytest.mark.parametrize(("begin", "reports", "work"), REPORTS)
def test_a_process_is_charged_for_the_time_with_work_in_flight(
    begin: int, reports: list[Mapping[str, int]], work: list[int]
) -> None:
    assert [seen.work.all_ns for seen in observed(begin, *reports)] == work


def test_a_process_without_progress_proves_nothing() -> None:
    """Its claims would have been taken from what its neighbours are charged with it."""
    stuck = {"since_ns": 5 * SECOND}
    seen = observed(
        10 * SECOND,
        stuck,
        {**stuck, "progress_ns": SECOND, "ran_ns": MS},
        {**stuck, "ran_ns": 2 * MS},
    )

    proved = [(one.work.all_ns, one.stalled_ns, one.work.ran_ns) for one in seen]
    assert proved == [(0, 0, 0), (2 * MS, 2 * MS, 0), (2 * MS, 0, MS)]


def test_what_the_window_held_back_is_the_sum_of_all_processes() -> None:
    rules, seen = ffi.new("struct turns_rules *", lib.turns_rules()), ffi.new("struct turns_seen *")
    processes = [ffi.new("struct turns_process *") for _ in range(2)]
    for now in (SECOND, SECOND + 2 * MS):
        report = ffi.new("struct turns_report *", {"held_ns": (now - SECOND) // 2})
        for process in processes:
            lib.turns_observe(seen, process, report, rules, now - 2 * MS, now)

    assert seen.held_ns == 2 * MS


class Gpu:
    """One whose containers, of these weights and ceilings, say what the test says."""

    def __init__(self, *shares: tuple[float, float]) -> None:
        self.gpu, self.now = ffi.new("struct turns_gpu *"), SECOND
        lib.turns_init(self.gpu, lib.turns_rules(), self.now)
        self.members = [self.gpu.members[lib.turns_join(self.gpu, *each)] for each in shares]

    def step(self, after: float = 0) -> int:
        """So much later; returns after how long it wants to look again."""
        self.now += round(after)
        return int(lib.turns_step(self.gpu, self.now)) - self.now


HALVES = (0.5, 1), (0.5, 1)


def test_the_holder_is_told_to_ring_while_another_one_waits() -> None:
    gpu = Gpu(*HALVES)
    one, two = gpu.members
    one.seen.waiting, told = 1, []
    gpu.step()
    one.seen.waiting, one.seen.live = 0, 1
    for waits in (0, 1, 0):
        two.seen.waiting = waits
        gpu.step(MS // 10)
        told.append((one.told.granted, one.told.wanted))

    assert told == [(True, False), (True, True), (True, False)]


def test_a_holder_that_does_not_come_is_passed_over_for_longer_each_time() -> None:
    gpu = Gpu(*HALVES)
    one, two = gpu.members
    one.seen.waiting = 1
    gpu.step()
    two.seen.waiting = 1
    gpu.step(MS * 0.9)
    still = one.told.granted

    gpu.step(MS * 0.2)

    assert (still, one.told.granted, two.told.granted) == (True, False, True)
    assert (one.absences, one.absent_until) == (1, gpu.now + 10 * MS)


def test_a_container_far_ahead_is_left_out_of_what_the_others_are_measured_by() -> None:
    gpu = Gpu(*HALVES)
    one, two = gpu.members
    one.seen.waiting = two.seen.waiting = 1
    gpu.step()
    one.virtual_ns += SECOND

    gpu.step()

    assert gpu.gpu.virtual_ns == pytest.approx(two.virtual_ns, abs=MS)


@pytest.mark.parametrize(("returns", "keeps"), [(True, 100_000), (False, 10_000)])
def test_a_holder_that_stops_to_think_keeps_its_place_for_a_moment(
    returns: bool,  # noqa: FBT001
    keeps: int,
) -> None:
    gpu = Gpu((0.1, 1), (0.9, 1))
    one, two = gpu.members
    one.seen.waiting = 1
    gpu.step()
    one.seen.waiting, one.seen.live, one.seen.work.all_ns = 0, 1, MS
    gpu.step(MS)
    one.seen.live, one.returns, two.seen.waiting = 0, returns, 1
    one.virtual_ns += SECOND  # it is owed nothing
    gpu.step()
    had = [(gpu.step(part * keeps), one.told.granted)[1] for part in (0.9, 0.2)]

    assert had == [True, False]


def test_a_ceiling_ends_a_turn_and_begins_the_next_at_the_look_that_was_announced() -> None:
    gpu = Gpu((0.3, 0.3))
    (one,) = gpu.members
    one.seen.waiting = 1
    gpu.step()
    one.seen.waiting, one.seen.live, one.seen.work.all_ns = 0, 1, MS
    gpu.step(MS)
    one.tokens = 3 * MS
    until_empty = gpu.step()
    one.seen.work.all_ns = 5 * MS  # it fills meanwhile
    gpu.step(5 * MS)
    emptied = one.starved, one.told.granted
    one.seen.waiting, one.seen.live = 1, 0
    refills = ((1 + 3 * 0.3) * gpu.gpu.rules.refill - one.tokens) / 0.3
    waited, look = 0, gpu.step()
    while not one.told.granted and waited < SECOND:
        waited += look
        look = gpu.step(look)

    assert (until_empty, emptied) == (3 * MS, (True, False))
    assert refills > 10 * MS  # so that a look in between finds it empty
    assert waited == pytest.approx(refills, abs=MS // 100)


def test_a_program_that_its_window_holds_back_runs_ahead_further_while_it_gets_too_little() -> None:
    gpu = Gpu(*HALVES)
    (one, _), wider = gpu.members, []
    for part in (0.03, 0.03, *[0] * 8):
        one.held_ns = one.idle_ns = part * 100 * MS
        gpu.step(100 * MS)
        wider.append(one.wider)

    assert wider[:4] == pytest.approx([1.5, 2.25, 2.025, 1.8225])
    assert wider[-1] == 1


def test_work_in_flight_for_long_keeps_a_container_from_its_turn_for_seconds_only() -> None:
    gpu = Gpu((0.25, 0.25))
    (member,) = gpu.members
    member.seen.work.all_ns, member.seen.waiting = 100 * SECOND, 1
    gpu.step(100 * SECOND)
    waits = gpu.now
    while gpu.now < waits + 20 * SECOND and not member.told.granted:
        gpu.step(10 * MS)

    assert gpu.now - waits == pytest.approx(2 * SECOND / 0.25, abs=SECOND)


def test_work_without_progress_changes_nobody_elses_charge() -> None:
    gpu = Gpu(*HALVES)
    holder, stalled = gpu.members
    holder.seen.waiting = 1
    gpu.step()
    stalled.late_ns = MS
    for member, part in ((holder, 0), (stalled, 1)):
        member.seen.work.all_ns, member.seen.unknown = MS, True
        member.seen.stalled_ns = part * MS

    gpu.step(MS)

    assert (holder.charged_ns, stalled.charged_ns) == (MS, MS / 2)
