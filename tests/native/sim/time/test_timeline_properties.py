"""What holds on the timeline for any history: no time is lost or made, everybody gets a turn."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.sim.machine import DriverBehaviour
from tests.native.sim.time.timeline import (
    KERNEL,
    LEGACY,
    MARKER,
    MEMORY,
    OTHER,
    SLICE,
    SMS,
    TO_DEVICE,
    TO_HOST,
    Timeline,
    timeline,
)

PROCESSES = 3
LANES = (LEGACY, LEGACY + 1, LEGACY + 2, OTHER, OTHER + 1)
LONGEST_SLEEP = 20_000_000
"""After which one who waits looks whether a competitor has died."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something queued, and a pause after it. back: it waits for work so many positions before."""

    process: int
    kind: int
    lane: int
    duration: int
    sms: int
    back: int
    pause: int


def steps(
    kinds: tuple[int, ...] = (KERNEL, MARKER, MEMORY, TO_DEVICE, TO_HOST),
    lanes: tuple[int, ...] = LANES,
    most_sms: int = SMS,
    most_back: int = 5,
    least: int = 0,
) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        process=st.integers(0, PROCESSES - 1),
        kind=st.sampled_from(kinds),
        lane=st.sampled_from(lanes),
        duration=st.integers(least, 3_000_000),
        sms=st.integers(1, most_sms),
        back=st.integers(0, most_back),
        pause=st.one_of(st.just(0), st.integers(0, 5_000_000)),
    )
    return st.lists(step, max_size=40)


PLAIN = steps(kinds=(KERNEL,), lanes=(OTHER,), most_back=0, least=1)
"""Kernels take time; one of 0 ns behind another process's is predicted 1 ns early."""
SWITCHES = st.sampled_from((0, 50_000, 150_000))
"""Nanoseconds that a switch between processes takes."""


@dataclass(frozen=True, slots=True)
class Queued:
    step: Step
    position: int
    at: int
    after: int | None


def played(line: Timeline, history: list[Step], pauses_in: int = 1) -> list[Queued]:
    """Queue all of it, each pause taken in so many parts."""
    queued: list[Queued] = []
    for step in history:
        duration = 0 if step.kind == MARKER else step.duration
        earlier = [entry.position for entry in queued if entry.step.process == step.process]
        after = earlier[-step.back] if 0 < step.back <= len(earlier) else None
        at = line.now
        position = line.queue(
            step.process,
            duration,
            kind=step.kind,
            lane=step.lane,
            sms=0 if step.kind in (MARKER, TO_DEVICE, TO_HOST) else step.sms,
            after=after,
        )
        queued.append(Queued(step, position, at - line.start, after))
        for part in range(pauses_in):
            line.advance(step.pause * (part + 1) // pauses_in - step.pause * part // pauses_in)
    return queued


def end_all(line: Timeline) -> None:
    for _ in range(10):
        line.advance(1_000_000_000)


@settings(max_examples=100, deadline=None)
@given(history=PLAIN)
def test_the_gpu_works_whenever_there_is_work_and_everybody_gets_what_it_queued(
    history: list[Step],
) -> None:
    with timeline(PROCESSES) as line:
        queued = played(line, history)
        end_all(line)

        free = 0  # when a GPU that never idles with work at hand has done all of it
        for entry in queued:
            free = max(free, entry.at) + entry.step.duration
        assert max((line.end(*of(entry)) for entry in queued), default=0) == free
        wanted = dict.fromkeys(range(PROCESSES), 0)
        for entry in queued:
            wanted[entry.step.process] += entry.step.duration
        assert line.busy() == wanted


@settings(max_examples=100, deadline=None)
@given(history=steps())
def test_nothing_ends_before_what_it_waits_for_and_its_own_time(history: list[Step]) -> None:
    with timeline(PROCESSES) as line:
        queued = played(line, history)
        end_all(line)

        for number, entry in enumerate(queued):
            begin = max(
                [entry.at, *(line.end(*of(one)) for one in awaited(entry, queued[:number]))]
            )
            assert line.end(*of(entry)) >= begin + duration(entry.step)


@settings(max_examples=100, deadline=None)
@given(history=PLAIN, switch=SWITCHES)
def test_a_gpu_with_work_at_hand_works_or_switches(history: list[Step], switch: int) -> None:
    with timeline(PROCESSES, DriverBehaviour(switch_ns=switch)) as line:
        for process in range(PROCESSES):
            line.queue(process, 1_000_000_000)
        played(line, history)

        assert line.lost() % max(switch, 1) <= switch
        assert line.lost() + sum(line.busy().values()) == line.now - line.start


@settings(max_examples=100, deadline=None)
@given(history=steps())
def test_accounts_never_exceed_the_time_there_was(history: list[Step]) -> None:
    with timeline(PROCESSES) as line:
        queued = played(line, history)
        end_all(line)

        account = line.account()
        kernels = [entry.step for entry in queued if entry.step.kind in (KERNEL, MEMORY)]
        worked = sum(step.duration * step.sms for step in kernels)
        last = max((line.end(*of(entry)) for entry in queued), default=0)
        assert sum(line.busy().values()) == account.busy_ns <= last
        assert account.sm_ns <= SMS * account.busy_ns
        assert worked <= account.sm_ns <= worked + SMS * len(kernels)


@settings(max_examples=100, deadline=None)
@given(
    pauses=st.lists(st.integers(1, 3 * SLICE), max_size=30), length=st.integers(10_000, 5 * SLICE)
)
def test_of_two_that_always_have_work_none_is_ahead_by_more_than_a_slice(
    pauses: list[int], length: int
) -> None:
    with timeline(2) as line:
        for pause in pauses:
            for process in (0, 1):
                for _ in range(pause // length + 2):
                    line.submit(process, length)
            line.advance(pause)
            one, other = line.busy().values()
            assert one + other == line.now - line.start
            assert abs(one - other) <= SLICE


@settings(max_examples=100, deadline=None)
@given(history=steps(), parts=st.integers(2, 7), switch=SWITCHES)
def test_how_often_somebody_looks_changes_nothing(
    history: list[Step], parts: int, switch: int
) -> None:
    ends: list[list[int]] = []
    for pauses_in in (1, parts):
        with timeline(PROCESSES, DriverBehaviour(switch_ns=switch)) as line:
            queued = played(line, history, pauses_in)
            end_all(line)
            ends.append([line.end(*of(entry)) for entry in queued])

    rounding = 2 * len(history)  # SMs are shared out in parts of a nanosecond
    assert all(abs(one - other) <= rounding for one, other in zip(*ends, strict=True))


@settings(max_examples=150, deadline=None)
@given(history=steps(), switch=SWITCHES)
def test_nobody_is_told_to_look_again_too_late(history: list[Step], switch: int) -> None:
    with timeline(PROCESSES, DriverBehaviour(switch_ns=switch)) as line:
        told = []
        for step in history:
            (entry,) = played(line, [step])
            if not line.reached(*of(entry), 1 << step.lane):
                told.append((entry, line.predict(*of(entry), 1 << step.lane) - line.start))
        end_all(line)

        assert all(line.end(*of(entry)) >= look for entry, look in told)


@settings(max_examples=100, deadline=None)
@given(history=PLAIN)
def test_who_waits_for_plain_kernels_is_told_exactly_but_for_the_dying_of_others(
    history: list[Step],
) -> None:
    with timeline(PROCESSES) as line:
        for entry in played(line, history)[-1:]:
            looks, start = 0, line.now
            while not line.reached(*of(entry), 1 << OTHER):
                line.advance_to(line.predict(*of(entry), 1 << OTHER))
                looks += 1
            assert looks <= 1 + (line.now - start) // LONGEST_SLEEP


@settings(max_examples=150, deadline=None)
@given(history=steps(), switch=SWITCHES)
def test_who_waits_is_seldom_woken_in_vain(history: list[Step], switch: int) -> None:
    with timeline(PROCESSES, DriverBehaviour(switch_ns=switch)) as line:
        for entry in played(line, history)[-1:]:
            looks, start = 0, line.now
            while not line.reached(*of(entry), 1 << entry.step.lane):
                line.advance_to(line.predict(*of(entry), 1 << entry.step.lane))
                looks += 1
            assert looks <= 2 * (len(history) + (line.now - start) // SLICE) + 20


def of(entry: Queued) -> tuple[int, int]:
    return entry.step.process, entry.position


def duration(step: Step) -> int:
    return 0 if step.kind == MARKER else step.duration


def awaited(entry: Queued, earlier: list[Queued]) -> list[Queued]:
    """What came before it in its lane, what it was told to wait for, and across the legacy lane."""
    return [
        one
        for one in earlier
        if one.step.process == entry.step.process
        and (
            one.step.lane == entry.step.lane
            or one.position == entry.after
            or (LEGACY in (one.step.lane, entry.step.lane) and not others(one, entry))
        )
    ]


def others(*entries: Queued) -> bool:
    """Is one of them in a stream that does not block?"""
    return any(entry.step.lane >= OTHER for entry in entries)
