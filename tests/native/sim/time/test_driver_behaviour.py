"""Where a simulated driver can be as unkind in time as real ones: one switch after another."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gpumanager.errors import InputError
from gpumanager.sim.gpu import Utilization
from gpumanager.sim.machine import DriverBehaviour, UtilizationSamples
from tests.native.sim.time.timeline import BEGIN, MARKER, PERIOD, Timeline, timeline
from tests.native.sim_box import machine, sim_box

US = 1_000
MS = 1_000_000
LONG = 100_000 * MS
ONE_PROCESS = DriverBehaviour(slice_ns=1_024_000, samples=UtilizationSamples.ONE_PROCESS)


@contextmanager
def two_programs() -> Iterator[tuple[Timeline, list[int]]]:
    """Under ONE_PROCESS, with their pids; at the end of a sample period."""
    with timeline(0, ONE_PROCESS) as line:
        programs = [line.attach_program() for _ in range(2)]
        try:
            line.advance(PERIOD)
            yield line, [program.pid for program in programs]
        finally:
            for program in programs:
                program.communicate()


def answer(line: Timeline, after: int = 0) -> dict[int, Utilization]:
    """By pid; no process twice."""
    rows = line.utilization(after)
    assert rows is not None
    found = {row.pid: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_sample_names_one_process_with_the_engines_percentage() -> None:
    with two_programs() as (line, pids):
        for process in (0, 1):
            line.queue(process, LONG)
        named: Counter[int] = Counter()
        for _ in range(200):
            line.advance(PERIOD)
            ((pid, row),) = answer(line, line.now - 1).items()
            assert (row.percent, row.sampled_ns) == (100, line.now)
            named[pid] += 1

        assert set(named) == set(pids)
        assert named[pids[0]] == pytest.approx(100, abs=35)  # five times what is usual


def test_processes_never_have_one_stamp() -> None:
    with two_programs() as (line, pids):
        for process in (0, 1):
            line.queue(process, LONG)
        line.advance(30 * PERIOD)

        stamps = [row.sampled_ns for row in answer(line).values()]

        assert len(set(stamps)) == len(stamps) == len(pids)


def test_a_late_answer_averages_over_all_samples_since_the_last_one() -> None:
    with two_programs() as (line, (one, other)):
        begin = line.now
        line.queue(0, PERIOD)
        line.advance(PERIOD)
        line.queue(1, PERIOD * 60 // 100)
        line.advance(2 * PERIOD)

        assert answer(line, begin) == {
            one: Utilization(one, 33, begin + PERIOD),
            other: Utilization(other, 20, begin + 2 * PERIOD),
        }


def test_a_process_alone_is_named_though_it_rests_when_the_sample_is_taken() -> None:
    with two_programs() as (line, (alone, _)):
        for _ in range(40):
            line.queue(0, PERIOD * 30 // 100)
            line.advance(PERIOD)

            assert answer(line, line.now - 1) == {alone: Utilization(alone, 30, line.now)}


def test_the_ring_has_the_last_72_samples() -> None:
    with two_programs() as (line, (one, other)):
        line.queue(0, PERIOD)
        line.advance(PERIOD)
        line.queue(1, 72 * PERIOD)
        line.advance(71 * PERIOD)
        before = answer(line)
        line.advance(PERIOD)

        assert (before[one].percent, before[other].percent) == (1, 99)
        assert answer(line) == {other: Utilization(other, 100, line.now)}


def test_a_long_pause_leaves_nothing_in_the_ring() -> None:
    with two_programs() as (line, (one, _)):
        line.queue(0, PERIOD)
        line.advance(1000 * PERIOD)
        line.queue(0, PERIOD)
        line.advance(2 * PERIOD)

        assert answer(line) == {one: Utilization(one, 1, line.now - PERIOD)}
        assert answer(line, line.now - 4 * PERIOD)[one].percent == 25


def test_a_process_that_has_ended_stays_in_the_ring() -> None:
    with two_programs() as (line, (ended, _)):
        line.queue(0, LONG)
        line.advance(3 * PERIOD)
        line.kill(0)
        line.advance(PERIOD)

        assert answer(line) == {ended: Utilization(ended, 60, line.now - PERIOD)}


def test_a_driver_may_tell_nothing_of_processes() -> None:
    with timeline(1, DriverBehaviour(samples=UtilizationSamples.NONE)) as line:
        line.queue(0, LONG)
        line.advance(3 * PERIOD)

        assert line.utilization() is None


def test_every_process_is_told_its_own_part_without_the_switch() -> None:
    with timeline(0) as line:
        programs = [line.attach_program() for _ in range(2)]
        line.advance(PERIOD)
        line.queue(0, PERIOD * 30 // 100)
        line.queue(1, PERIOD * 50 // 100)
        line.advance(PERIOD)

        found = answer(line)
        for program in programs:
            program.communicate()

    assert [found[program.pid].percent for program in programs] == [30, 50]
    assert {row.sampled_ns for row in found.values()} == {BEGIN + 2 * PERIOD}


SWITCH = 50 * US


def test_a_switch_between_processes_takes_time_that_is_nobodys() -> None:
    with timeline(2, DriverBehaviour(slice_ns=MS, switch_ns=SWITCH)) as line:
        ends = [line.queue(0, 3 * MS), line.queue(1, 2 * MS)]

        line.advance(20 * MS)

        assert [line.end(process, end) for process, end in enumerate(ends)] == [
            5 * MS + 4 * SWITCH,
            4 * MS + 3 * SWITCH,
        ]
        assert line.busy() == {0: 3 * MS, 1: 2 * MS}
        assert line.lost() == 4 * SWITCH


def test_a_process_that_comes_back_first_needs_no_switch() -> None:
    with timeline(2, DriverBehaviour(switch_ns=SWITCH)) as line:
        line.queue(0, MS)
        line.advance(10 * MS)
        again = line.queue(0, MS)
        line.advance(10 * MS)
        other = line.queue(1, MS)
        line.advance(10 * MS)

        assert (line.end(0, again), line.end(1, other)) == (11 * MS, 21 * MS + SWITCH)
        assert line.lost() == SWITCH


def test_an_event_too_happens_only_when_the_gpu_has_switched_to_its_process() -> None:
    with timeline(2, DriverBehaviour(slice_ns=MS, switch_ns=SWITCH)) as line:
        line.queue(0, 10 * MS)
        event = line.queue(1, kind=MARKER)

        line.advance(5 * MS)

        assert line.end(1, event) == MS + SWITCH


def test_who_dies_while_the_gpu_switches_to_it_leaves_the_gpu() -> None:
    with timeline(2, DriverBehaviour(slice_ns=MS, switch_ns=SWITCH)) as line:
        first = line.queue(0, 2 * MS)
        line.queue(1, MS)
        line.advance(MS + SWITCH // 2)
        line.kill(1)
        line.advance(5 * MS)

        assert line.end(0, first) == 2 * MS + SWITCH // 2 + SWITCH


def test_no_queue_is_deeper_than_there_is_room_for() -> None:
    with (
        pytest.raises(InputError, match="at most 1024"),
        sim_box(replace(machine(1), driver=DriverBehaviour(queue_depth=1025))),
    ):
        pass
