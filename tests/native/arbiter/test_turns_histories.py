"""10,000 random histories of one GPU: whatever containers say, decisions keep their promises."""

import random
from typing import Any

import pytest

from vcuda_shim import _arbiter

ffi: Any = _arbiter.ffi
lib: Any = _arbiter.lib

MS, SECOND = 1_000_000, 1_000_000_000
HISTORIES, STEPS, MEMBERS = 10_000, 40, 4
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


def test_a_report_that_is_torn_is_charged_once() -> None:
    rules = ffi.new("struct turns_rules *", lib.turns_rules())
    process, report = ffi.new("struct turns_process *"), ffi.new("struct turns_report *")
    total = 0.0
    steps = [(1, 10 * MS, 0), (1, 10 * MS, 0), (1, 10 * MS, 4 * MS), (0, 10 * MS, 4 * MS)]
    for step, (in_flight, since, busy) in enumerate(steps):
        now = 10 * MS + step * 2 * MS
        seen = ffi.new("struct turns_seen *")
        report.since_ns, report.busy_ns = since * in_flight, busy
        report.progress_ns = now
        lib.turns_observe(seen, process, report, rules, now - 2 * MS, now)
        total += seen.work.all_ns

    assert total == 4 * MS


def test_an_end_that_is_dated_back_is_refunded_when_work_begins_again() -> None:
    """Of 4 ms that were charged it had work for 3.95; then it has work for 2 ms more."""
    rules = ffi.new("struct turns_rules *", lib.turns_rules())
    process, report = ffi.new("struct turns_process *"), ffi.new("struct turns_report *")
    work, busy = [], 3_950_000
    steps = [(1, 10, 0), (1, 10, 0), (1, 10, 0), (0, 10, busy), (1, 16, busy), (1, 16, busy)]
    for step, (in_flight, since, before) in enumerate(steps):
        now = 10 * MS + step * 2 * MS
        seen = ffi.new("struct turns_seen *")
        report.since_ns, report.busy_ns = since * in_flight * MS, before
        report.progress_ns = now
        lib.turns_observe(seen, process, report, rules, now - 2 * MS, now)
        work.append(seen.work.all_ns)

    assert work == [0, 2 * MS, 2 * MS, 0, 2 * MS - 50_000, 2 * MS]


def test_a_process_that_once_claimed_all_time_is_charged_again_afterwards() -> None:
    rules = ffi.new("struct turns_rules *", lib.turns_rules())
    process, report = ffi.new("struct turns_process *"), ffi.new("struct turns_report *")
    work = []
    for step, busy in enumerate([0, 2**63, 0, MS, 2 * MS]):
        now = SECOND + step * 2 * MS
        seen = ffi.new("struct turns_seen *")
        report.busy_ns, report.progress_ns = busy, now
        lib.turns_observe(seen, process, report, rules, now - 2 * MS, now)
        work.append(seen.work.all_ns)

    assert work == [0, 2 * MS, 0, MS, MS]


def test_a_process_without_progress_proves_nothing() -> None:
    """Its claims would have been taken from what its neighbours are charged with it."""
    rules = ffi.new("struct turns_rules *", lib.turns_rules())
    process, report = ffi.new("struct turns_process *"), ffi.new("struct turns_report *")
    proved = []
    for step, progress in enumerate([10 * SECOND, SECOND, 10 * SECOND]):
        now = 10 * SECOND + step * 2 * MS
        seen = ffi.new("struct turns_seen *")
        report.since_ns, report.progress_ns = 5 * SECOND, progress
        report.ran_ns = step * MS
        lib.turns_observe(seen, process, report, rules, now - 2 * MS, now)
        proved.append((seen.work.all_ns, seen.stalled_ns, seen.work.ran_ns))

    assert proved == [(0, 0, 0), (2 * MS, 2 * MS, 0), (2 * MS, 0, MS)]


def test_work_in_flight_for_long_keeps_a_container_from_its_turn_for_seconds_only() -> None:
    gpu = ffi.new("struct turns_gpu *")
    lib.turns_init(gpu, lib.turns_rules(), SECOND)
    member = gpu.members[lib.turns_join(gpu, 0.25, 0.25)]
    waits = now = 101 * SECOND
    member.seen.work.all_ns, member.seen.waiting = 100 * SECOND, 1
    while now < waits + 20 * SECOND and not member.told.granted:
        lib.turns_step(gpu, now)
        now += 10 * MS

    assert now - waits == pytest.approx(2 * SECOND / 0.25, abs=SECOND)


def test_work_without_progress_changes_nobody_elses_charge() -> None:
    gpu = ffi.new("struct turns_gpu *")
    lib.turns_init(gpu, lib.turns_rules(), SECOND)
    holder, stalled = lib.turns_join(gpu, 0.5, 1), lib.turns_join(gpu, 0.5, 1)
    gpu.members[holder].seen.waiting = 1
    lib.turns_step(gpu, SECOND)
    gpu.members[stalled].late_ns = MS
    for at, part in ((holder, 0), (stalled, 1)):
        gpu.members[at].seen.work.all_ns, gpu.members[at].seen.unknown = MS, True
        gpu.members[at].seen.stalled_ns = part * MS

    lib.turns_step(gpu, SECOND + MS)

    assert gpu.members[holder].charged_ns == MS
    assert gpu.members[stalled].charged_ns == MS / 2
