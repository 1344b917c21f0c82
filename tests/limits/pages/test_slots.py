"""Whose a slot is: of one program, from its HELLO until it is gone, and nobody's meanwhile."""

import errno
import os
import struct
from fcntl import F_OFD_SETLK, F_WRLCK, fcntl
from pathlib import Path
from typing import Any

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import Books
from gpumanager.limits.pages.slot_table import locked
from gpumanager.limits.processes import find, runs_in
from tests.limits.container_process import StartProcess, eventually
from tests.limits.metered_manager import Manage
from tests.limits.open_door import NAME, held, limit, pids, say
from tests.limits.programs.hello_client import hello
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures"]


def lock_slot(books: Path, slot: int) -> int:
    """What a peer does that looks whether the slot's owner is dead."""
    descriptor = os.open(books, os.O_RDWR)
    flock = struct.pack("hhqqi4x", F_WRLCK, os.SEEK_SET, lib.VCUDA_ALIVE_BYTE + slot, 1, 0)
    fcntl(descriptor, F_OFD_SETLK, flock)
    return descriptor


async def test_a_program_that_execs_another_gives_its_bytes_back(
    manage: Manage, start_process: StartProcess
) -> None:
    sockets = manage(sweep_seconds=0.05)
    process = await start_process(await sockets.open(NAME, [limit()]) / "vcuda.sock")
    await process.answer()
    await process.ask("hold 1000")
    assert process.process.stdin is not None

    process.process.stdin.write(b"become sleep 60\n")

    assert await eventually(lambda: held(sockets) == 0)
    assert pids(sockets) == set()
    assert process.process.returncode is None


@pytest.mark.parametrize(
    "looks",
    [{"poll_seconds": 0.02, "sweep_seconds": 3600}, {"poll_seconds": 3600, "sweep_seconds": 0.05}],
    ids=["asking", "by the sweep alone"],
)
async def test_without_pidfds_a_death_is_noticed(
    manage: Manage, start_process: StartProcess, monkeypatch: pytest.MonkeyPatch, looks: Any
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    sockets = manage(**looks)
    process = await start_process(await sockets.open(NAME, [limit()]) / "vcuda.sock")
    await process.answer()
    await process.ask("hold 1000")

    await process.kill()

    assert await eventually(lambda: held(sockets) == 0)
    assert pids(sockets) == set()


async def test_a_slot_that_a_peer_is_emptying_is_not_given_away(
    door: Path, start_process: StartProcess
) -> None:
    with Books.existing(door.parent) as books:
        peer = lock_slot(Path(f"/proc/self/fd/{books.descriptor}"), 0)

    first = await start_process(door)
    _status, slot, _reason = await first.answer()
    os.close(peer)
    second = await start_process(door)

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
    sockets: VirtualManager, door: Path, start_process: StartProcess
) -> None:
    process = await start_process(door)
    _status, slot, _reason = await process.answer()
    await process.ask("hold 1000")

    assert await process.ask("keep") == [0, slot, 1]

    assert held(sockets) == 1000


async def test_who_has_no_slot_to_keep_gets_none(sockets: VirtualManager, door: Path) -> None:
    answer = await say(door, hello(flags=lib.VCUDA_HELLO_KEEP))

    assert answer is not None
    assert (answer.status, answer.reason) == (-errno.ESTALE, "the process has no slot to keep")
    assert pids(sockets) == set()


def test_a_seat_is_its_programs_until_the_process_runs_another() -> None:
    own = find(os.getpid())
    assert own is not None
    assert own.stack

    assert runs_in(own.stack, own)
    assert runs_in(0, own), "stacks that nobody knows tell nothing"
    assert not runs_in(own.stack + 4096, own)
