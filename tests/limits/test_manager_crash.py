"""The manager dies, at every instant there is, and the next one finds everything in the files."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import Books, boot_id, read_usage
from gpumanager.limits.pages.mapping import RegionUnreadable
from gpumanager.limits.processes import Process, find
from gpumanager.limits.values import AllocationUsage
from gpumanager.units import Bytes
from tests.limits.container_process import PROGRAMS, SECONDS, StartProcess, eventually
from tests.limits.open_door import virtual_manager
from tests.limits.programs.hello_client import OBSERVER, Answer, Regions, exchange, hello
from tests.limits.programs.manager_process import LIMIT

pytest_plugins = ["tests.limits.virtual_fixtures"]

NAME = AllocationID("a1")


class DoomedManagers:
    """One at a time, of a process that has no threads (`doomed_managers`)."""

    def __init__(self) -> None:
        program = [sys.executable, "-m", "tests.limits.programs.doomed_managers", NAME]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def was_killed(self, at: int, root: Path) -> bool:
        """In its opening; False: it was over before."""
        answer = self._asked(f"open {at} {root}")
        assert answer in {"killed", "done"}
        return answer == "killed"

    def serve(self, at: int, root: Path) -> Path:
        """Its socket, while it serves."""
        assert self._asked(f"serve {at} {root}") == "ready"
        return root / "alloc" / NAME / "vcuda.sock"

    def end(self) -> None:
        """Of the one that serves."""
        assert self._asked("end") == "ended"

    def close(self) -> None:
        self._process.communicate(timeout=300)

    def _asked(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        return self._process.stdout.readline().strip()


@pytest.fixture
def doomed() -> Iterator[DoomedManagers]:
    managers = DoomedManagers()
    yield managers
    managers.close()


Recover = Callable[[Path], AllocationUsage]


@pytest.fixture
def recovered() -> Iterator[Recover]:
    """What the next manager finds, after it has opened the allocation."""

    async def reopen(root: Path) -> AllocationUsage:
        sockets = virtual_manager(root)
        await sockets.open(NAME, [LIMIT])
        usage = sockets.usage(NAME)
        await sockets.stop()
        return usage

    with asyncio.Runner() as runner:
        yield lambda root: runner.run(reopen(root))


def test_a_manager_killed_anywhere_in_its_first_opening_leaves_nothing_in_the_way(
    root: Path, doomed: DoomedManagers, recovered: Recover
) -> None:
    at = 1
    while doomed.was_killed(at, root / str(at)):
        usage = recovered(root / str(at))
        assert [device.limit for device in usage.devices] == [LIMIT]
        assert usage.processes == ()
        at += 1

    assert at > 30, "the sweep met hardly any call"


def a_process_that_is_gone() -> Process:
    with subprocess.Popen(["sleep", "60"]) as process:
        found = find(process.pid)
        process.kill()
    assert found is not None
    return found


def test_a_manager_killed_anywhere_in_recovery_loses_no_living_process(
    root: Path, doomed: DoomedManagers, recovered: Recover
) -> None:
    me, gone = find(os.getpid()), a_process_that_is_gone()
    assert me is not None
    held: list[int] = []

    def found_books(at: int) -> Path:
        directory = root / str(at) / "alloc" / NAME
        directory.mkdir(parents=True)
        with Books.prepare(directory, boot_id()) as books:
            for descriptor in held:
                os.close(descriptor)
            held[:] = [books.open_for(observer=False)]
            for process, amount in ((gone, 500), (me, 77)):
                books.words.used[0][books.claim(process)] = amount
        return root / str(at)

    at = 1
    while doomed.was_killed(at, found_books(at)):
        usage = recovered(root / str(at))
        assert [(one.pid, one.held) for one in usage.processes] == [(me.pid, (77,))]
        assert usage.devices[0].held == 77
        at += 1

    assert at > 30, "the sweep met hardly any call"


def attempt(path: Path, message: bytes) -> Answer | None:
    try:
        return exchange(path, message)
    except (TimeoutError, ConnectionError):
        return None


def test_a_manager_killed_anywhere_in_a_hello_leaves_one_slot_or_none(
    root: Path, doomed: DoomedManagers, recovered: Recover
) -> None:
    at, finished = 1, False
    while not finished:
        place = root / str(at)
        socket = doomed.serve(at, place)
        answer = attempt(socket, hello())
        if answer is not None:
            Regions.of(answer).hold(answer.slot, 77)
        after = attempt(socket, OBSERVER)
        if after is not None:
            after.close()
            finished = True
        doomed.end()

        processes = recovered(place).processes
        if answer is None:
            assert [(one.pid, one.held) for one in processes] in ([], [(os.getpid(), (0,))])
        else:
            assert [(one.slot, one.held) for one in processes] == [(answer.slot, (77,))]
            answer.close()
        at += 1

    assert at > 30, "the sweep met hardly any call"


@pytest.mark.parametrize("left", [500, 0], ids=["before zeroing", "before freeing"])
def test_a_crash_while_a_dead_process_is_cleared_is_finished_by_the_next_manager(
    root: Path, left: int, recovered: Recover
) -> None:
    directory = root / "alloc" / NAME
    directory.mkdir(parents=True)
    with Books.prepare(directory, boot_id()) as books:
        slot = books.claim(a_process_that_is_gone())
        books.words.used[0][slot] = left

        usage = recovered(root)

    assert usage.processes == ()
    assert usage.devices[0].held == 0


def test_books_scribbled_over_by_a_container_cannot_stop_the_manager(
    root: Path, recovered: Recover
) -> None:
    directory = root / "alloc" / NAME
    directory.mkdir(parents=True)
    with Books.prepare(directory, boot_id()) as books:
        books.words.slot_limit = 2**32 - 1
        for slot in (0, 1, 1023):
            books.words.slots[slot].pid = 2**32 - 1 - slot
            books.words.used[0][slot] = 2**64 - 1

        usage = recovered(root)

    assert usage.processes == ()
    assert usage.devices[0].held == 0


@pytest.fixture
async def start_manager(root: Path) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    started = []

    async def start() -> asyncio.subprocess.Process:
        manager = await asyncio.create_subprocess_exec(
            sys.executable,
            PROGRAMS / "manager_process.py",
            root,
            NAME,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(manager)
        assert manager.stdout is not None
        assert await asyncio.wait_for(manager.stdout.readline(), SECONDS) == b"ready\n"
        return manager

    yield start
    for manager in started:
        if manager.returncode is None:
            manager.kill()
        await manager.wait()


async def test_a_killed_manager_is_missed_by_no_container_and_its_heir_finds_them_all(
    root: Path, start_manager: Callable[[], Awaitable[Any]], start_process: StartProcess
) -> None:
    directory = root / "alloc" / NAME
    manager = await start_manager()
    living, dying = [await start_process(directory / "vcuda.sock") for _ in range(2)]
    await living.answer()
    _status, freed, _reason = await dying.answer()
    assert await living.ask("hold 1000") == 1000
    assert await dying.ask("hold 30") == 30

    manager.kill()
    await manager.wait()
    await dying.kill()

    assert await living.ask("limit") == LIMIT.memory
    with pytest.raises(ConnectionRefusedError):
        exchange(directory / "vcuda.sock", hello())
    assert read_usage(directory).devices[0].held == 1030

    await start_manager()

    assert [(one.pid, one.held) for one in read_usage(directory).processes] == [
        (living.pid, (Bytes(1000),))
    ]
    newcomer = await start_process(directory / "vcuda.sock")
    assert await newcomer.answer() == [0, freed, ""]
    living.process.kill()
    assert await eventually(lambda: read_usage(directory).devices[0].held == 0)


async def test_two_openings_of_one_allocation_are_one(root: Path, sockets: VirtualManager) -> None:
    first = await sockets.open(NAME, [LIMIT])
    inode = (first / "books").stat().st_ino

    assert await sockets.open(NAME, [LIMIT]) == first

    assert (first / "books").stat().st_ino == inode


async def test_a_manager_that_stops_leaves_its_directories(
    root: Path, sockets: VirtualManager
) -> None:
    directory = await sockets.open(NAME, [LIMIT])
    await sockets.stop()

    assert sockets.usage(NAME).devices[0].limit == LIMIT
    assert {path.name for path in directory.iterdir()} == {"vcuda.sock", "config", "books"}
    with pytest.raises(RegionUnreadable):
        sockets.usage(AllocationID("unknown"))
