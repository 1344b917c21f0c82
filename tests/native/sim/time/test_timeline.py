"""The timeline on a clock of the test's own: who runs when, to the nanosecond."""

import pytest

from gpumanager.sim.machine import DriverBehaviour
from tests.native.sim.time.timeline import (
    BLOCKING,
    KERNEL,
    LEGACY,
    MARKER,
    MEMORY,
    OTHER,
    QUEUE_DEPTH,
    SLICE,
    SMS,
    TO_DEVICE,
    TO_HOST,
    Timeline,
    timeline,
)

LONG = 100 * SLICE


def test_a_process_alone_proceeds_at_full_speed() -> None:
    with timeline(1) as line:
        ends = [line.queue(0, 700), line.queue(0, 300)]

        line.advance(5000)

        assert [line.end(0, end) for end in ends] == [700, 1000]


def test_processes_have_the_gpu_in_turn_for_a_slice_each() -> None:
    with timeline(3) as line:
        ends = [line.queue(process, 3 * SLICE // 2) for process in range(3)]

        line.advance(10 * SLICE)

        halves = [line.end(process, end) * 2 // SLICE for process, end in enumerate(ends)]
        assert halves == [7, 8, 9]


def test_a_machine_says_how_long_a_turn_lasts() -> None:
    with timeline(2, DriverBehaviour(slice_ns=300)) as line:
        ends = [line.queue(process, 500) for process in (0, 1)]

        line.advance(SLICE)

        assert [line.end(process, end) for process, end in enumerate(ends)] == [800, 1000]


def test_a_process_with_nothing_left_yields_at_once() -> None:
    with timeline(2) as line:
        short, long = line.queue(0, 1000), line.queue(1, 2 * SLICE)

        line.advance(5 * SLICE)

        assert (line.end(0, short), line.end(1, long)) == (1000, 1000 + 2 * SLICE)


def test_a_process_that_queues_more_as_its_work_ends_keeps_its_turn() -> None:
    with timeline(2) as line:
        line.queue(0, 1000)
        other = line.queue(1, SLICE)
        line.advance(1000)

        more = line.queue(0, 1000)
        line.advance(3 * SLICE)

        assert (line.end(0, more), line.end(1, other)) == (2000, 2000 + SLICE)


def test_a_process_that_queues_more_too_late_waits_for_its_turn() -> None:
    with timeline(2) as line:
        line.queue(0, 1000)
        line.queue(1, LONG)
        line.advance(1001)

        more = line.queue(0, 1000)
        line.advance(3 * SLICE)

        assert line.end(0, more) == 1000 + SLICE + 1000


def test_whoever_comes_while_the_slice_lasts_waits_for_its_end() -> None:
    with timeline(2) as line:
        line.queue(0, LONG)
        line.advance(SLICE // 2)

        late = line.queue(1, 1000)
        line.advance(3 * SLICE)

        assert line.end(1, late) == SLICE + 1000


def test_one_that_was_alone_ends_its_slice_when_another_comes() -> None:
    with timeline(2) as line:
        line.queue(0, LONG)
        line.advance(10 * SLICE + 1)

        late = line.queue(1, 1000)
        line.advance(2 * SLICE)

        assert line.end(1, late) == 11 * SLICE + 1000


def test_a_dead_process_leaves_the_gpu_to_the_others() -> None:
    with timeline(2) as line:
        line.queue(0, LONG)
        end = line.queue(1, 1000)
        line.advance(1000)

        line.kill(0)
        line.advance(SLICE)

        assert line.end(1, end) == 2000


def test_streams_run_together_while_the_sms_suffice() -> None:
    with timeline(1) as line:
        ends = [line.queue(0, 1000, lane=OTHER + n, sms=SMS // 2) for n in range(2)]

        line.advance(5000)

        assert [line.end(0, end) for end in ends] == [1000, 1000]
        assert line.busy() == {0: 1000}
        assert line.account().sm_ns == 1000 * SMS


def test_streams_that_want_more_sms_than_there_are_proceed_alike() -> None:
    with timeline(1) as line:
        short = line.queue(0, 1000, lane=OTHER, sms=SMS)
        long = line.queue(0, 3000, lane=OTHER + 1, sms=SMS)

        line.advance(9000)

        assert (line.end(0, short), line.end(0, long)) == (2000, 4000)


def test_a_stream_runs_in_order_however_many_sms_are_free() -> None:
    with timeline(1) as line:
        ends = [line.queue(0, 100) for _ in range(5)]

        line.advance(1000)

        assert [line.end(0, end) for end in ends] == [100, 200, 300, 400, 500]


def test_work_waits_for_an_event_of_another_stream() -> None:
    with timeline(1) as line:
        first = line.queue(0, 1000, lane=OTHER)
        line.queue(0, kind=MARKER, lane=OTHER + 1, after=first)
        second = line.queue(0, 100, lane=OTHER + 1)

        line.advance(5000)

        assert line.end(0, second) == 1100


def test_the_legacy_stream_waits_for_blocking_streams_and_they_for_it() -> None:
    with timeline(1) as line:
        before = [line.queue(0, length, lane=BLOCKING + n) for n, length in enumerate((300, 700))]
        legacy = line.queue(0, 100, lane=LEGACY)
        behind = line.queue(0, 50, lane=BLOCKING + 2)

        line.advance(5000)

        assert [line.end(0, end) for end in (*before, legacy, behind)] == [300, 700, 800, 850]


def test_streams_that_do_not_block_run_beside_the_legacy_stream() -> None:
    with timeline(1) as line:
        line.queue(0, 1000, lane=LEGACY)
        beside = line.queue(0, 300, lane=OTHER)
        legacy = line.queue(0, 100, lane=LEGACY)

        line.advance(5000)

        assert (line.end(0, beside), line.end(0, legacy)) == (300, 1100)


@pytest.mark.parametrize("kind", [TO_DEVICE, TO_HOST])
def test_copies_run_beside_kernels_and_are_not_busy_time(kind: int) -> None:
    with timeline(1) as line:
        kernel, copy = line.queue(0, 500), line.queue(0, 800, kind=kind, lane=OTHER + 1)

        line.advance(5000)

        assert (line.end(0, kernel), line.end(0, copy)) == (500, 800)
        assert line.busy() == {0: 500}


def test_copies_of_one_direction_follow_each_other_whoever_makes_them() -> None:
    with timeline(2) as line:
        ends = [line.queue(process, 800, kind=TO_DEVICE) for process in (0, 1)]
        back = line.queue(1, 800, kind=TO_HOST, lane=OTHER + 1)

        line.advance(5000)

        assert (line.end(0, ends[0]), line.end(1, ends[1]), line.end(1, back)) == (800, 1600, 800)


def test_a_kernel_after_a_copy_in_its_stream_waits_for_it() -> None:
    with timeline(1) as line:
        line.queue(0, 800, kind=TO_DEVICE)
        kernel = line.queue(0, 100)

        line.advance(5000)

        assert line.end(0, kernel) == 900


def test_a_memset_is_busy_time_and_no_launch() -> None:
    with timeline(1) as line:
        line.queue(0, 700, kind=MEMORY, sms=SMS)
        line.queue(0, 300, kind=KERNEL)
        line.advance(5000)

        account = line.account()

        assert (account.busy_ns, account.launches) == (1000, 1)


def test_an_event_on_a_free_gpu_happens_at_once() -> None:
    with timeline(1) as line:
        assert line.end(0, line.queue(0, kind=MARKER)) == 0


def test_an_event_waits_for_the_turn_of_its_process() -> None:
    with timeline(2) as line:
        line.queue(0, LONG)
        event = line.queue(1, kind=MARKER)

        line.advance(3 * SLICE)

        assert line.end(1, event) == SLICE


def test_a_full_queue_takes_no_more() -> None:
    with timeline(1) as line:
        for _ in range(QUEUE_DEPTH):
            line.queue(0, 10)

        assert line.submit(0, 10) is None
        line.advance(10)
        assert line.submit(0, 10) is not None


def looks_until_done(line: Timeline, process: int, position: int, lane: int = OTHER) -> int:
    """How often one who waits for it wakes; it must wake at the end, to the nanosecond."""
    looks = 0
    while not line.reached(process, position, 1 << lane):
        line.advance_to(line.predict(process, position, 1 << lane))
        looks += 1
    assert line.end(process, position) == line.now - line.start
    return looks


def test_who_waits_alone_wakes_once() -> None:
    with timeline(1) as line:
        last = [line.queue(0, 10_000) for _ in range(1000)][-1]

        assert looks_until_done(line, 0, last) == 1


def test_who_waits_across_streams_beside_another_process_wakes_seldom() -> None:
    with timeline(2) as line:
        for _ in range(1000):
            line.queue(0, 100_000)
        first = line.queue(1, 5 * SLICE, lane=OTHER)
        waiting = line.queue(1, kind=MARKER, lane=OTHER + 1, after=first)

        assert looks_until_done(line, 1, waiting, OTHER + 1) <= 2
        assert line.now - line.start == 10 * SLICE


def test_who_waits_beside_others_that_stay_busy_wakes_only_to_see_whether_they_live() -> None:
    with timeline(3) as line:
        last = [line.queue(1, 10_000) for _ in range(1000)][-1]
        for other in (0, 2):
            for _ in range(1000):
                line.queue(other, 20_000)

        assert looks_until_done(line, 1, last) == 2  # 26 ms, and 20 ms at most at a time
        assert line.now - line.start == 10_000_000 + 4 * 2 * SLICE  # four times both others
