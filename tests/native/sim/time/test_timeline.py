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


def work(process: int, duration: int = 0, **how: int) -> tuple[int, int, dict[str, int]]:
    return process, duration, how


@pytest.mark.parametrize(
    ("queued", "ends"),
    [
        pytest.param(
            [work(0, 700), work(0, 300)], [700, 1000], id="alone: at full speed, in order"
        ),
        pytest.param(
            [work(process, 3 * SLICE // 2) for process in range(3)],
            [7 * SLICE // 2, 8 * SLICE // 2, 9 * SLICE // 2],
            id="processes have the GPU in turn for a slice each",
        ),
        pytest.param(
            [work(0, 1000), work(1, 2 * SLICE)],
            [1000, 1000 + 2 * SLICE],
            id="who has nothing left yields at once",
        ),
        pytest.param(
            [work(0, 1000, sms=SMS), work(0, 3000, lane=OTHER + 1, sms=SMS)],
            [2000, 4000],
            id="streams that want more SMs than there are proceed alike",
        ),
        pytest.param(
            [
                work(0, 1000),
                work(0, kind=MARKER, lane=OTHER + 1, after=0),
                work(0, 100, lane=OTHER + 1),
            ],
            [1000, 1000, 1100],
            id="work waits for an event of another stream",
        ),
        pytest.param(
            [
                *(work(0, 300, lane=BLOCKING), work(0, 700, lane=BLOCKING + 1)),
                *(work(0, 100, lane=LEGACY), work(0, 50, lane=BLOCKING + 2)),
            ],
            [300, 700, 800, 850],
            id="the legacy stream waits for blocking streams, and they for it",
        ),
        pytest.param(
            [work(0, 1000, lane=LEGACY), work(0, 300), work(0, 100, lane=LEGACY)],
            [1000, 300, 1100],
            id="streams that do not block run beside the legacy stream",
        ),
        pytest.param(
            [
                *(work(process, 800, kind=TO_DEVICE) for process in (0, 1)),
                work(1, 800, kind=TO_HOST, lane=OTHER + 1),
            ],
            [800, 1600, 800],
            id="copies of one direction follow each other whoever makes them",
        ),
        pytest.param(
            [work(0, 800, kind=TO_DEVICE), work(0, 100)],
            [800, 900],
            id="a kernel after a copy in its stream waits for it",
        ),
        pytest.param([work(0, kind=MARKER)], [0], id="an event on a free GPU happens at once"),
        pytest.param(
            [work(0, 2 * SLICE), work(1, kind=MARKER)],
            [2 * SLICE, SLICE],
            id="an event waits for the turn of its process",
        ),
    ],
)
def test_what_is_queued_at_once_ends_in_its_turn(
    queued: list[tuple[int, int, dict[str, int]]], ends: list[int]
) -> None:
    with timeline(3) as line:
        places = [(one, line.queue(one, duration, **how)) for one, duration, how in queued]

        line.advance(10 * SLICE)

        assert [line.end(*place) for place in places] == ends


def test_a_machine_says_how_long_a_turn_lasts() -> None:
    with timeline(2, DriverBehaviour(slice_ns=300)) as line:
        ends = [line.queue(process, 500) for process in (0, 1)]

        line.advance(SLICE)

        assert [line.end(process, end) for process, end in enumerate(ends)] == [800, 1000]


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


@pytest.mark.parametrize("kind", [TO_DEVICE, TO_HOST])
def test_copies_run_beside_kernels_and_are_not_busy_time(kind: int) -> None:
    with timeline(1) as line:
        kernel, copy = line.queue(0, 500), line.queue(0, 800, kind=kind, lane=OTHER + 1)

        line.advance(5000)

        assert (line.end(0, kernel), line.end(0, copy)) == (500, 800)
        assert line.busy() == {0: 500}


def test_a_memset_is_busy_time_and_no_launch() -> None:
    with timeline(1) as line:
        line.queue(0, 700, kind=MEMORY, sms=SMS)
        line.queue(0, 300, kind=KERNEL)
        line.advance(5000)

        account = line.account()

        assert (account.busy_ns, account.launches) == (1000, 1)


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
