"""The arbiter's thread on the real clock, and on one of a simulation, with pages made here."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vcuda_shim import _arbiter

ffi: Any = _arbiter.ffi
lib: Any = _arbiter.lib

MS, SECOND = 1_000_000, 1_000_000_000
GRANTED, BOUNDED, SHARED, WANTED = 1, 2, 4, 8


def eventually(is_so: Callable[[], bool], seconds: float = 2) -> bool:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.0005)
    return is_so()


MAPPED: list["Container"] = []
"""Their pages stay in place until the arbiter has stopped."""


class Container:
    """Words, hints and a pipe, as the agent makes them."""

    def __init__(self, arbiter: Any, *gpus: int, weight: float = 0.5, ceiling: float = 1) -> None:
        self.arbiter = arbiter
        self.words: Any = ffi.new("struct vcuda_turns *")
        self.hints: Any = ffi.new("struct vcuda_hints *")
        self.pipe, self.ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.seats = ffi.new(
            "struct arbiter_seat[]", [(gpu, weight, ceiling) for gpu in gpus or (0,)]
        )
        MAPPED.append(self)
        self.join()

    def join(self) -> None:
        out = ffi.new("struct arbiter_container **")
        joined = lib.arbiter_join(
            self.arbiter, self.words, self.hints, self.pipe, self.seats, len(self.seats), out
        )
        assert joined == 0
        self.handle = out[0]

    def process(self, slot: int = 0, pidfd: int = -1) -> Any:
        assert lib.arbiter_process(self.arbiter, self.handle, slot, pidfd) == 0
        return self.hints.of[0][slot]

    def wants(self, slot: int = 0) -> None:
        hint = self.hints.of[0][slot]
        hint.waiting, hint.waits_until_ns = 1, time.monotonic_ns() + 10**11
        self.rings()

    def works(self, slot: int = 0) -> None:
        hint = self.hints.of[0][slot]
        hint.waiting = 0
        hint.since_ns = hint.progress_ns = time.monotonic_ns()
        self.rings()

    def rings(self) -> None:
        os.write(self.ring, b"!")

    def leave(self) -> None:
        lib.arbiter_leave(self.arbiter, self.handle)

    def bits(self, device: int = 0) -> int:
        return int(self.words.of[device].turn) % 16

    def granted(self, device: int = 0) -> bool:
        return bool(self.bits(device) & GRANTED)

    def account(self) -> Any:
        out = ffi.new("struct arbiter_account *")
        lib.arbiter_account(self.arbiter, self.handle, 0, out)
        return out


def start(world: Any = ffi.NULL) -> Any:
    out = ffi.new("struct arbiter **")
    assert lib.arbiter_start(world, out) == 0
    return out[0]


@pytest.fixture
def arbiter() -> Iterator[Any]:
    started = start()
    yield started
    lib.arbiter_stop(started)
    MAPPED.clear()


def test_a_process_that_waits_is_granted_the_turn_at_its_ring(arbiter: Any) -> None:
    one = Container(arbiter)
    one.process()
    asked = time.monotonic()
    one.wants()

    assert eventually(one.granted)
    assert time.monotonic() - asked < 0.5  # 10 ms on a free processor
    assert one.words.magic == lib.VCUDA_TURNS_MAGIC
    assert one.bits() & BOUNDED == 0


def test_the_holder_is_told_that_another_one_waits_and_loses_the_turn_when_idle(
    arbiter: Any,
) -> None:
    one, two = Container(arbiter), Container(arbiter)
    for container in (one, two):
        container.process()
    one.wants()
    assert eventually(one.granted)
    one.works()
    two.wants()
    assert eventually(lambda: bool(one.bits() & (WANTED | BOUNDED)) or two.granted())

    one.hints.of[0][0].since_ns = 0
    one.rings()

    assert eventually(two.granted)
    assert not one.granted()
    assert one.account().turns == two.account().turns == 1


def test_the_number_of_looks_stays_while_no_container_wants_a_gpu(arbiter: Any) -> None:
    one = Container(arbiter)
    one.process()

    def stays() -> bool:
        """Once the arbiter has looked at a process that came, however late it is."""
        seen = lib.arbiter_looks(arbiter)
        time.sleep(0.1)
        return bool(lib.arbiter_looks(arbiter) == seen)

    assert eventually(stays)
    before = lib.arbiter_looks(arbiter)
    one.wants()

    assert eventually(lambda: lib.arbiter_looks(arbiter) > before)


def test_gpus_of_collectives_are_one_turn_for_a_second_after_the_last(arbiter: Any) -> None:
    one, two = Container(arbiter, 0, 1), Container(arbiter, 1)
    for container in (one, two):
        container.process()
    for device in range(2):
        one.hints.of[device][0].collectives_launched = 1
    one.wants()
    assert eventually(lambda: one.granted(0) and one.granted(1))  # and it waits for the first only

    time.sleep(1.2)
    two.wants()

    assert eventually(two.granted)
    assert one.granted(0)
    assert not one.granted(1)


def test_two_greedy_containers_take_turns_and_are_charged_the_wall_time(arbiter: Any) -> None:
    both = [Container(arbiter, weight=0.3), Container(arbiter, weight=0.7)]
    begun = time.monotonic_ns()
    for container in both:
        container.process()
        container.wants()
    while time.monotonic_ns() - begun < SECOND // 2:
        for container in both:
            hint = container.hints.of[0][0]
            if container.granted() and not hint.since_ns:
                container.works()
            elif not container.granted() and hint.since_ns:
                hint.busy_ns += time.monotonic_ns() - hint.since_ns
                hint.since_ns = 0
                container.wants()
        time.sleep(0.0002)
    accounts = [container.account() for container in both]

    assert all(account.turns > 3 for account in accounts)
    assert sum(account.charged_ns for account in accounts) <= time.monotonic_ns() - begun
    assert accounts[0].charged_ns < accounts[1].charged_ns


def test_a_holder_that_dies_is_followed_at_once(arbiter: Any) -> None:
    one, two = Container(arbiter), Container(arbiter)
    reading, writing = os.pipe()  # readable as a pidfd is, once its other end is gone
    one.process(pidfd=reading)
    os.close(reading)
    two.process()
    one.wants()
    assert eventually(one.granted)
    one.hints.of[0][0].since_ns = one.hints.of[0][0].progress_ns = time.monotonic_ns()
    two.wants()
    os.close(writing)

    assert eventually(two.granted)
    assert eventually(lambda: not two.bits() & BOUNDED)


def test_a_container_may_leave_with_the_turn_and_join_again(arbiter: Any) -> None:
    one, two = Container(arbiter), Container(arbiter)
    for container in (one, two):
        container.process()
        container.wants()
    assert eventually(lambda: one.granted() or two.granted())
    holder, other = (one, two) if one.granted() else (two, one)
    serial = holder.words.of[0].turn // 16
    holder.leave()
    assert eventually(other.granted)

    holder.join()
    holder.process()
    holder.wants()
    other.hints.of[0][0].waiting = 0
    other.rings()

    assert eventually(lambda: holder.words.of[0].turn // 16 > serial)  # not the turn of before
    assert eventually(lambda: holder.granted() and not other.granted())


def test_words_stay_as_they_are_when_the_arbiter_stops() -> None:
    arbiter = start()
    one = Container(arbiter)
    one.process()
    one.wants()
    assert eventually(one.granted)
    word = one.words.of[0].turn

    lib.arbiter_stop(arbiter)

    assert one.words.of[0].turn == word


def test_a_gpu_is_looked_at_while_it_is_wanted_and_only_then(arbiter: Any) -> None:
    one = Container(arbiter)
    one.process()
    one.works()
    one.rings()
    first = one.words.of[0].looked_ns
    assert eventually(lambda: one.words.of[0].looked_ns > first + 50 * MS)

    lib.arbiter_process_gone(arbiter, one.handle, 0)
    time.sleep(0.05)
    last = one.words.of[0].looked_ns
    time.sleep(0.1)

    assert one.words.of[0].looked_ns == last


def test_a_holder_that_finds_no_fresh_look_is_looked_at(arbiter: Any) -> None:
    """It was idle: its word is as it was, and yet it must not sleep on."""
    one = Container(arbiter)
    one.process()
    one.wants()
    assert eventually(one.granted)
    one.hints.of[0][0].waiting = 0
    one.rings()
    time.sleep(0.1)
    word, looked = one.words.of[0].turn, one.words.of[0].looked_ns
    assert one.granted()

    one.wants()

    assert eventually(lambda: one.words.of[0].looked_ns > looked)
    assert one.granted()
    assert one.words.of[0].turn != word


def test_a_device_without_a_weight_is_always_granted(arbiter: Any) -> None:
    one = Container(arbiter, weight=0)

    assert one.bits() == GRANTED

    one.seats[0].weight = 0.5
    lib.arbiter_weigh(arbiter, one.handle, one.seats, 1)
    one.process()
    assert eventually(lambda: not one.granted())


def test_foreign_work_makes_drains_measure_nothing(arbiter: Any) -> None:
    one = Container(arbiter)
    one.process()
    lib.arbiter_foreign(arbiter, 0, True)

    assert eventually(lambda: bool(one.bits() & SHARED))


def test_time_outside_of_turns_is_charged_and_puts_a_container_behind_the_others(
    arbiter: Any,
) -> None:
    cheat, other = Container(arbiter), Container(arbiter)
    for one in (cheat, other):
        one.process()
        one.works()
    account = ffi.new("struct arbiter_account *")
    owed = []
    for ns in (0, 100 * MS, 10**18):
        lib.arbiter_charge(arbiter, cheat.handle, 0, ns)
        lib.arbiter_account(arbiter, cheat.handle, 0, account)
        owed.append(account.owed_ns)

    assert account.charged_ns > 10**18
    assert owed[0] - owed[1] >= 50 * MS
    assert -SECOND < owed[2] < owed[1]
    lib.arbiter_account(arbiter, other.handle, 0, account)
    assert account.charged_ns < SECOND


def test_a_gpu_has_room_for_128_containers_and_refuses_more(arbiter: Any) -> None:
    many = [Container(arbiter, weight=0.01) for _ in range(128)]
    extra = ffi.new("struct arbiter_container **")
    words, hints = ffi.new("struct vcuda_turns *"), ffi.new("struct vcuda_hints *")

    refused = lib.arbiter_join(arbiter, words, hints, many[0].ring, many[0].seats, 1, extra)

    assert refused < 0
    assert extra[0] == ffi.NULL
    for container in many:
        container.leave()
        os.close(container.pipe)
        os.close(container.ring)


def test_a_container_that_rings_without_end_takes_little_of_a_processor(arbiter: Any) -> None:
    one, two = Container(arbiter), Container(arbiter)
    one.process()
    two.process()

    def threads() -> list[Path]:
        tasks = Path("/proc/self/task").iterdir()
        return [task for task in tasks if (task / "comm").read_text() == "arbiter\n"]

    assert eventually(lambda: len(threads()) == 1)
    thread = threads()[0]

    def ticks() -> int:
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, end = ticks(), time.monotonic() + 1
    while time.monotonic() < end:
        try:
            one.rings()
        except BlockingIOError:
            time.sleep(0)
    used = (ticks() - before) / os.sysconf("SC_CLK_TCK")

    two.wants()
    assert eventually(two.granted)
    assert used < 0.25


class World:
    """A clock that stands still while the arbiter is awake."""

    def __init__(self) -> None:
        self.time, self.wakes, self.go = SECOND, 0, threading.Semaphore(0)
        self.slept: list[int] = []
        self.containers: list[Container] = []
        self.granted: list[list[bool]] = []
        """To these, whenever a word has changed."""
        self.asleep = threading.Semaphore(0)
        self.now = ffi.callback("uint64_t(void)", lambda: self.time)
        self.wait = ffi.callback("void(uint32_t *, uint32_t, uint64_t)", self._wait)
        self.wake = ffi.callback("void(uint32_t *)", self._wake)
        self.words = ffi.new("struct vcuda_world *", (self.now, self.wait, self.wake))

    def _wait(self, _word: Any, _expected: int, deadline: int) -> None:
        self.slept.append(deadline - self.time)
        self.asleep.release()
        self.go.acquire()

    def _wake(self, word: Any) -> None:
        if word == ffi.NULL:
            self.go.release()
        else:
            self.wakes += 1
            self.granted.append([one.granted() for one in self.containers])

    def look(self, after: int) -> None:
        self.time += after
        self.go.release()


def test_in_a_simulation_the_arbiter_waits_by_its_clock() -> None:
    world = World()
    arbiter = start(world.words)
    one = Container(arbiter)
    one.process()
    assert eventually(lambda: bool(world.slept))
    one.wants()
    world.look(5 * MS)

    assert eventually(one.granted)
    assert world.wakes == 1
    assert eventually(lambda: one.words.of[0].looked_ns == world.time)
    assert all(0 < deadline <= 10 * MS for deadline in world.slept)
    lib.arbiter_stop(arbiter)


def test_a_turn_is_taken_back_before_it_is_given_to_another() -> None:
    world = World()
    arbiter = start(world.words)
    one, two = world.containers = [Container(arbiter), Container(arbiter)]

    def given_to(container: Container) -> bool:
        container.wants()
        for _ in range(100):
            if eventually(container.granted, 0.02):
                return True
            world.look(5 * MS)
        return False

    for container in (one, two):
        container.process()
    passed = given_to(one), given_to(two)
    lib.arbiter_stop(arbiter)

    assert passed == (True, True)
    assert [True, False] in world.granted
    assert [False, True] in world.granted
    assert [True, True] not in world.granted
