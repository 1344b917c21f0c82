"""Which process a pid means, and the moment it dies: by pidfd, and by looking."""

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest
from container_process import eventually

from gpumanager.virtual.processes import Process, Watcher, alive, find

PROGRAM = ["sleep", "60"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(PROGRAM) as process:
        yield process
        process.kill()


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
    script = (
        "import ctypes, os, sys, threading\n"
        "def rest():\n"
        "    path = f'/proc/{os.getpid()}/stat'\n"
        "    while open(path).read().rpartition(')')[2].split()[0] != 'Z': pass\n"
        "    os.write(1, b'x')\n"
        "    os.read(0, 1)\n"
        "    os._exit(0)\n"
        "threading.Thread(target=rest).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
        if os.uname().machine == "x86_64"
        else ""
    )
    if not script:
        pytest.skip("the number of exit(2) is written here for x86-64 only")
    pipe = subprocess.PIPE
    with subprocess.Popen(["python3", "-c", script], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"

        assert find(process.pid) is not None


async def test_a_death_is_told_once(watcher_kind: str, sleeper: subprocess.Popen[bytes]) -> None:
    told: list[Process] = []
    watcher = Watcher(poll_seconds=0.01)
    process = find(sleeper.pid)
    assert process is not None
    assert watcher.watch(process, told.append)
    assert watcher.watch(process, told.append)

    sleeper.kill()

    assert await eventually(lambda: bool(told))
    await asyncio.to_thread(sleeper.wait)
    assert told == [process]
    watcher.close()


async def test_a_process_dead_before_it_is_watched_is_not_watched(
    watcher_kind: str, sleeper: subprocess.Popen[bytes]
) -> None:
    told: list[Process] = []
    watcher = Watcher(poll_seconds=0.01)
    process = find(sleeper.pid)
    assert process is not None
    sleeper.kill()
    sleeper.wait()

    assert not watcher.watch(process, told.append)
    assert not watcher.watch(Process(os.getpid(), 1), told.append)
    assert not told
    watcher.close()


async def test_a_forgotten_process_dies_untold(
    watcher_kind: str, sleeper: subprocess.Popen[bytes]
) -> None:
    told: list[Process] = []
    watcher = Watcher(poll_seconds=0.01)
    process = find(sleeper.pid)
    assert process is not None
    watcher.watch(process, told.append)

    watcher.forget(process)
    sleeper.kill()
    await asyncio.to_thread(sleeper.wait)

    assert not await eventually(lambda: bool(told), within=0.05)
    watcher.close()


async def test_without_descriptors_to_spare_death_is_still_noticed(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    def none_left(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    told: list[Process] = []
    watcher = Watcher(poll_seconds=0.01)
    process = find(sleeper.pid)
    assert process is not None
    watcher.watch(process, told.append)

    sleeper.kill()

    assert await eventually(lambda: told == [process])
    watcher.close()
