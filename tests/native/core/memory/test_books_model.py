"""Every interleaving of a few reservations, on a model of `native/shim/core/memory/books.c`.

The model takes one shared word in one step, as the processor does, and lets any process go next
or die. It shows that the order of the steps is right: announce, look, enter, withdraw; and, so that
it is seen to be able to, that other orders fail. That the C code takes these steps is for a reader
to see; that it survives the real machine, for the races in test_books.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

LIMIT = 10


@dataclass(frozen=True, slots=True)
class Process:
    """tasks: bytes to take, or 0 to release all. seen: words read in this look, in order.

    denied: a refusal of the task at hand would be right by now: at some moment there was no room.
    """

    tasks: tuple[int, ...]
    at: str = "look"
    seen: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    denied: bool = False
    dead: bool = False


@dataclass(frozen=True, slots=True)
class State:
    used: tuple[int, ...]
    pending: tuple[int, ...]
    processes: tuple[Process, ...]


class SpuriousRefusalError(Exception):
    """A process was refused although there had been room all along."""


def put(words: tuple[int, ...], slot: int, value: int) -> tuple[int, ...]:
    return (*words[:slot], value, *words[slot + 1 :])


def word(state: State, number: int) -> int:
    """The words in the order a look reads them: each slot's announcement before what it holds."""
    slot, second = divmod(number, 2)
    return state.used[slot] if second else state.pending[slot]


def looked(process: Process, slots: int) -> bool:
    return len(process.seen) == 2 * slots


def step(state: State, slot: int) -> State:
    """What the process does next: one access to a shared word, and what follows without one."""
    process = state.processes[slot]
    if process.tasks[0] == 0:
        return moved(replace(state, used=put(state.used, slot, 0)), slot, done(process))
    return STEPS[process.at](state, slot, process)


def moved(state: State, slot: int, process: Process) -> State:
    return replace(
        state, processes=(*state.processes[:slot], process, *state.processes[slot + 1 :])
    )


def done(process: Process) -> Process:
    return Process(process.tasks[1:])


def again(process: Process) -> Process:
    return Process(process.tasks, denied=process.denied)


def look(state: State, slot: int, process: Process) -> State:
    process = replace(process, seen=(*process.seen, word(state, len(process.seen))))
    if looked(process, len(state.used)):
        process = judge(process)
    return moved(state, slot, process)


def judge(process: Process) -> Process:
    held, pending, wanted = sum(process.seen[1::2]), sum(process.seen[::2]), process.tasks[0]
    if held + wanted > LIMIT:
        return replace(process, at="confirm", seen=(), first=process.seen[1::2])
    if held + pending + wanted > LIMIT:
        return again(process)
    return replace(process, at="announce", seen=())


def confirm(state: State, slot: int, process: Process) -> State:
    process = replace(process, seen=(*process.seen, word(state, len(process.seen))))
    if not looked(process, len(state.used)):
        return moved(state, slot, process)
    if process.seen[1::2] != process.first:
        return moved(state, slot, again(process))
    if not process.denied:
        raise SpuriousRefusalError(state)
    return moved(state, slot, done(process))


def announce(state: State, slot: int, process: Process) -> State:
    state = replace(state, pending=put(state.pending, slot, process.tasks[0]))
    return moved(state, slot, replace(process, at="decide"))


def decide(state: State, slot: int, process: Process) -> State:
    process = replace(process, seen=(*process.seen, word(state, len(process.seen))))
    if looked(process, len(state.used)):
        process = replace(process, at="enter" if sum(process.seen) <= LIMIT else "step back")
    return moved(state, slot, process)


def enter(state: State, slot: int, process: Process) -> State:
    held = state.used[slot] + process.tasks[0]
    state = replace(state, used=put(state.used, slot, held))
    return moved(state, slot, replace(process, at="withdraw"))


def withdraw(state: State, slot: int, process: Process) -> State:
    return moved(replace(state, pending=put(state.pending, slot, 0)), slot, done(process))


def step_back(state: State, slot: int, process: Process) -> State:
    return moved(replace(state, pending=put(state.pending, slot, 0)), slot, again(process))


STEPS = {
    "look": look,
    "confirm": confirm,
    "announce": announce,
    "decide": decide,
    "enter": enter,
    "withdraw": withdraw,
    "step back": step_back,
}


def die(state: State, slot: int) -> State:
    """Its slot is emptied, word by word in whatever order; here at once."""
    state = replace(state, used=put(state.used, slot, 0), pending=put(state.pending, slot, 0))
    return moved(state, slot, Process((), dead=True))


def note_denials(state: State) -> State:
    """For each process: was there, at this moment, no room for what it wants?"""
    held = sum(state.used)
    return replace(
        state,
        processes=tuple(
            replace(process, denied=process.denied or held + process.tasks[0] > LIMIT)
            if process.tasks and process.tasks[0]
            else process
            for process in state.processes
        ),
    )


def successors(state: State, *, deaths: bool) -> Iterator[State]:
    for slot, process in enumerate(state.processes):
        if process.tasks:
            yield note_denials(step(state, slot))
        if deaths and not process.dead:
            yield note_denials(die(state, slot))


def explore(*tasks: tuple[int, ...], deaths: bool) -> set[State]:
    zeros = (0,) * len(tasks)
    begin = State(zeros, zeros, tuple(Process(task) for task in tasks))
    found, open_ = {begin}, [begin]
    while open_:
        for state in successors(open_.pop(), deaths=deaths):
            if state not in found:
                found.add(state)
                open_.append(state)
    return found


@pytest.mark.parametrize(
    "tasks",
    [
        ((6,), (6,)),
        ((10, 0, 10), (10, 0, 10)),
        ((6, 0, 3), (6, 4)),
        ((6,), (6,), (4,)),
        ((5, 0), (5,), (5,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("deaths", [False, True], ids=["all live", "any may die"])
def test_never_over_the_limit_never_refused_with_room_and_always_an_end(
    tasks: tuple[tuple[int, ...], ...],
    deaths: bool,  # noqa: FBT001
) -> None:
    states = explore(*tasks, deaths=deaths)

    assert len(states) > 100
    assert max(sum(state.used) for state in states) <= LIMIT
    ends = [state for state in states if not any(process.tasks for process in state.processes)]
    assert ends
    assert all(sum(state.pending) == 0 for state in ends)


def held_before_announced(state: State, number: int) -> int:
    slot, second = divmod(number, 2)
    return state.pending[slot] if second else state.used[slot]


def test_reading_what_is_held_before_what_is_announced_would_lose_bytes_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sums must tell the columns apart, so only the deciding look is turned around."""

    def decide_turned(state: State, slot: int, process: Process) -> State:
        value = held_before_announced(state, len(process.seen))
        process = replace(process, seen=(*process.seen, value))
        if looked(process, len(state.used)):
            process = replace(process, at="enter" if sum(process.seen) <= LIMIT else "step back")
        return moved(state, slot, process)

    monkeypatch.setitem(STEPS, "decide", decide_turned)

    states = explore((6,), (6,), deaths=False)

    assert max(sum(state.used) for state in states) > LIMIT


def test_one_look_would_refuse_what_there_was_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_at_once(state: State, slot: int, process: Process) -> State:
        if not process.denied:
            raise SpuriousRefusalError(state)
        return moved(state, slot, done(process))

    monkeypatch.setitem(STEPS, "confirm", refuse_at_once)

    with pytest.raises(SpuriousRefusalError):
        explore((5, 0), (5,), (5,), deaths=False)


def test_entering_without_an_announcement_would_go_over_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(state: State, slot: int, process: Process) -> State:
        return moved(state, slot, replace(process, at="decide"))

    monkeypatch.setitem(STEPS, "announce", nothing)

    states = explore((6,), (6,), deaths=False)

    assert max(sum(state.used) for state in states) > LIMIT
