"""Which process a pid means, and the moment it dies: by pidfd, and by looking."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpumanager.limits.processes import Process, Watcher, alive, command_of, find
from gpumanager.limits.socket.bounds import Descriptors
from tests.limits.container_process import PROGRAMS, eventually
from tests.limits.open_door import open_descriptors

PROGRAM = ["sleep", "60"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(PROGRAM) as process:
        yield process
        process.kill()


@pytest.fixture
def sleepers() -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    with subprocess.Popen(PROGRAM) as one, subprocess.Popen(PROGRAM) as other:
        yield one, other
        one.kill()
        other.kill()


@pytest.fixture
async def watcher() -> AsyncIterator[Watcher]:
    """One that polls often, where it has to."""
    made = Watcher(Descriptors(), poll_seconds=0.01)
    yield made
    made.close()


@pytest.fixture
def process(sleeper: subprocess.Popen[bytes]) -> Process:
    """The sleeper, alive."""
    found = find(sleeper.pid)
    assert found is not None
    return found


@pytest.fixture(params=["pidfd", "polling"])
def watcher_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polling":
        monkeypatch.delattr(os, "pidfd_open")
    return str(request.param)


def test_this_process_is_found_and_a_pid_that_cannot_be_is_not() -> None:
    mine = find(os.getpid())

    assert mine is not None
    assert alive(mine)
    assert not alive(Process(mine.pid, mine.start_time - 1))
    assert find(2**32 - 1) is None


def test_a_process_has_the_name_of_its_program(sleeper: subprocess.Popen[bytes]) -> None:
    running = find(sleeper.pid)
    assert running is not None

    assert command_of(running) == Path(f"/proc/{sleeper.pid}/comm").read_text().strip()
    assert command_of(Process(running.pid, running.start_time + 1)) == ""


def test_a_program_name_full_of_brackets_does_not_mislead() -> None:
    name = ") Z 1 (("
    script = f"import threading, sys; open('/proc/self/comm','w').write({name!r}); print(1)"
    script += "; sys.stdout.flush(); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen(["python3", "-c", script], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()

        found = find(process.pid)

        assert found is not None
        assert found.pid == process.pid


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)

    assert find(sleeper.pid) is None


def test_a_process_whose_first_thread_has_ended_is_alive() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the number of exit(2) is written here for x86-64 only")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, PROGRAMS / "first_thread_ends.py"], stdin=pipe, stdout=pipe
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"

        assert find(process.pid) is not None


async def test_a_death_is_told_once(
    watcher_kind: str,
    watcher: Watcher,
    sleeper: subprocess.Popen[bytes],
    process: Process,
) -> None:
    told: list[Process] = []
    assert watcher.watch(process, told.append)
    assert watcher.watch(process, told.append)

    sleeper.kill()

    assert await eventually(lambda: bool(told))
    await asyncio.to_thread(sleeper.wait)
    assert told == [process]


async def test_a_process_dead_before_it_is_watched_is_not_watched(
    watcher_kind: str,
    watcher: Watcher,
    sleeper: subprocess.Popen[bytes],
    process: Process,
) -> None:
    told: list[Process] = []
    sleeper.kill()
    sleeper.wait()

    assert not watcher.watch(process, told.append)
    assert not watcher.watch(Process(os.getpid(), 1), told.append)
    assert not told


async def test_a_forgotten_process_dies_untold(
    watcher_kind: str,
    watcher: Watcher,
    sleepers: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
) -> None:
    told: list[Process] = []
    first, second = (watcher.watch_pid(one.pid, told.append) for one in sleepers)
    assert first is not None

    watcher.forget(first)
    for one in sleepers:
        one.kill()
        await asyncio.to_thread(one.wait)

    assert await eventually(lambda: bool(told))
    assert told == [second]


async def test_whom_it_watches_and_what_it_keeps_costs_descriptors_until_it_is_forgotten(
    process: Process,
) -> None:
    descriptors = Descriptors()
    watcher = Watcher(descriptors)
    ours, theirs = socket.socketpair()
    before = open_descriptors()

    for _ in range(2):
        assert watcher.watch(process, lambda _: None)
    assert (descriptors.pidfds_now, open_descriptors()) == (1, before + 1)
    release = watcher.keep(process, ours)
    assert release is not None
    assert descriptors.pidfds_now == 2
    release()
    assert descriptors.pidfds_now == 1

    watcher.forget(process)

    assert (descriptors.pidfds_now, open_descriptors()) == (0, before)
    ours.close()
    theirs.close()


async def test_without_descriptors_to_spare_death_is_still_noticed(
    monkeypatch: pytest.MonkeyPatch,
    watcher: Watcher,
    sleeper: subprocess.Popen[bytes],
    process: Process,
) -> None:
    def none_left(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    told: list[Process] = []
    watcher.watch(process, told.append)

    sleeper.kill()

    assert await eventually(lambda: told == [process])


async def test_of_two_that_die_at_once_each_watcher_is_told_of_its_own(
    sleepers: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
) -> None:
    told: tuple[list[Process], list[Process]] = ([], [])
    watchers = Watcher(Descriptors()), Watcher(Descriptors())
    one, other = sleepers
    both = {watchers[0].watch_pid(process.pid, told[0].append) for process in sleepers}
    second = watchers[1].watch_pid(other.pid, told[1].append)

    one.kill()
    other.kill()

    assert await eventually(lambda: len(told[0]) == len(both))
    assert await eventually(lambda: told[1] == [second])
    assert set(told[0]) == both


async def test_who_is_told_of_one_death_may_forget_another(
    sleepers: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
) -> None:
    told: list[Process] = []
    watcher = Watcher(Descriptors())
    watched: set[Process] = set()

    def forget_all(process: Process) -> None:
        told.append(process)
        for one in watched:
            watcher.forget(one)

    for sleeper in sleepers:
        found = watcher.watch_pid(sleeper.pid, forget_all)
        assert found is not None
        watched.add(found)
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()

    assert await eventually(lambda: bool(told))
    assert len(told) == 1  # one look of the loop finds both dead
