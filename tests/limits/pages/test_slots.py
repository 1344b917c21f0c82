"""Whose a slot is: of one program, from its HELLO until it is gone, and nobody's meanwhile."""

import asyncio
import errno
import json
import os
import struct
import sys
from fcntl import F_OFD_SETLK, F_WRLCK, fcntl
from pathlib import Path

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import Books
from gpumanager.limits.pages.slot_table import locked
from gpumanager.limits.processes import find, runs_in
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from tests.limits.container_process import SECONDS, StartProcess, eventually
from tests.limits.open_door import virtual_manager
from tests.limits.programs.hello_client import exchange, hello
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures"]

NAME = AllocationID("a1")
LIMIT = Limit(GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0"), Bytes(GIB), 30, 30)

CROWD = (sys.executable, "-m", "tests.limits.programs.crowd")


def held(sockets: VirtualManager) -> int:
    return sockets.usage(NAME).devices[0].held


def lock_slot(books: Path, slot: int) -> int:
    """What a peer does that looks whether the slot's owner is dead."""
    descriptor = os.open(books, os.O_RDWR)
    flock = struct.pack("hhqqi4x", F_WRLCK, os.SEEK_SET, lib.VCUDA_ALIVE_BYTE + slot, 1, 0)
    fcntl(descriptor, F_OFD_SETLK, flock)
    return descriptor


async def test_a_program_that_execs_another_gives_its_bytes_back_within_a_second(
    sockets: VirtualManager, start_process: StartProcess
) -> None:
    door = await sockets.open(NAME, [LIMIT]) / "vcuda.sock"
    process = await start_process(door)
    await process.answer()
    await process.ask("hold 1000")
    assert process.process.stdin is not None

    process.process.stdin.write(b"become sleep 60\n")

    assert await eventually(lambda: held(sockets) == 0, within=2.0)  # the sweep, and exec itself
    assert sockets.usage(NAME).processes == ()
    assert process.process.returncode is None


@pytest.mark.parametrize("polls", [True, False], ids=["asking", "by the sweep alone"])
async def test_without_pidfds_a_death_is_noticed_within_a_second(
    root: Path, start_process: StartProcess, monkeypatch: pytest.MonkeyPatch, *, polls: bool
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    sockets = virtual_manager(root) if polls else virtual_manager(root, poll_seconds=3600)
    process = await start_process(await sockets.open(NAME, [LIMIT]) / "vcuda.sock")
    await process.answer()
    await process.ask("hold 1000")

    await process.kill()

    assert await eventually(lambda: held(sockets) == 0, within=1.2)
    await sockets.stop()


async def test_of_more_processes_than_slots_each_is_served_or_told_why(
    sockets: VirtualManager,
) -> None:
    door = await sockets.open(NAME, [LIMIT]) / "vcuda.sock"
    count = lib.VCUDA_SLOTS + 6
    pipe = asyncio.subprocess.PIPE
    crowd = await asyncio.create_subprocess_exec(
        *CROWD, door, str(count), stdin=pipe, stdout=pipe, limit=2**20
    )
    assert crowd.stdout is not None
    told = json.loads(await asyncio.wait_for(crowd.stdout.readline(), SECONDS))

    slots = sorted(slot for status, slot in told if status == 0)
    assert slots == list(range(lib.VCUDA_SLOTS))
    assert [answer for answer in told if answer[0] != 0] == [[-errno.ENOSPC, -1]] * 6
    await crowd.communicate(b"")
    assert await eventually(lambda: sockets.usage(NAME).processes == ())


async def test_a_slot_that_a_peer_is_emptying_is_not_given_away(
    sockets: VirtualManager, start_process: StartProcess
) -> None:
    directory = await sockets.open(NAME, [LIMIT])
    with Books.existing(directory) as books:
        peer = lock_slot(Path(f"/proc/self/fd/{books.descriptor}"), 0)

    first = await start_process(directory / "vcuda.sock")
    _status, slot, _reason = await first.answer()
    os.close(peer)
    second = await start_process(directory / "vcuda.sock")

    assert slot == 1
    assert await second.answer() == [0, 0, ""]


def test_the_lock_of_one_slot_says_nothing_of_the_next(tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.touch()
    peer = lock_slot(books, 5)
    with books.open("r+b") as file:
        assert [locked(file.fileno(), slot) for slot in (4, 5, 6)] == [False, True, False]
        os.close(peer)
        assert not locked(file.fileno(), 5)


def test_where_nothing_can_be_locked_nothing_is() -> None:
    reader, writer = os.pipe()
    assert not locked(reader, 0)
    os.close(reader)
    os.close(writer)


async def test_who_lost_its_descriptors_keeps_its_slot_and_its_bytes(
    sockets: VirtualManager, start_process: StartProcess
) -> None:
    process = await start_process(await sockets.open(NAME, [LIMIT]) / "vcuda.sock")
    _status, slot, _reason = await process.answer()
    await process.ask("hold 1000")

    assert await process.ask("keep") == [0, slot, 1]

    assert held(sockets) == 1000


async def test_who_has_no_slot_to_keep_gets_none(sockets: VirtualManager) -> None:
    door = await sockets.open(NAME, [LIMIT]) / "vcuda.sock"

    answer = await asyncio.to_thread(exchange, door, hello(flags=lib.VCUDA_HELLO_KEEP))

    assert answer is not None
    assert (answer.status, answer.reason) == (-errno.ESTALE, "the process has no slot to keep")
    assert sockets.usage(NAME).processes == ()


def test_a_seat_is_its_programs_until_the_process_runs_another() -> None:
    own = find(os.getpid())
    assert own is not None
    assert own.stack

    assert runs_in(own.stack, own)
    assert runs_in(0, own), "stacks that nobody knows tell nothing"
    assert not runs_in(own.stack + 4096, own)
