"""Whoever calls at the virtual manager's door: other versions, garbage, silence, crowds."""

import asyncio
import errno
import os
import resource
import socket
from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import Books
from gpumanager.limits.socket.bounds import CALLERS
from tests.limits.container_process import eventually
from tests.limits.open_door import NAME, limit, open_descriptors, pids, say
from tests.limits.programs.hello_client import OBSERVER, connect, hello, patient_exchange, receive

pytest_plugins = ["tests.limits.virtual_fixtures"]


async def test_another_version_is_told_so(door: Path) -> None:
    answer = await say(door, hello(version=2))

    assert answer is not None
    assert (answer.status, answer.slot, answer.descriptors) == (-errno.EPROTO, -1, ())
    assert "protocol 2" in answer.reason


async def test_when_the_books_are_full_the_process_is_told_why(
    sockets: VirtualManager, door: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Books, "claim", lambda *_: None)

    answer = await say(door)

    assert answer is not None
    assert answer.status == -errno.ENOSPC
    assert answer.reason == "all slots are taken: too many processes use the GPU"


async def test_regions_that_were_removed_are_an_answer_not_a_crash(door: Path) -> None:
    (door.parent / "books").unlink()

    answer = await say(door)

    assert answer is not None
    assert answer.status == -errno.EAGAIN
    assert answer.reason == "manager: opening the regions: No such file or directory"


@pytest.mark.parametrize("half", [b"", hello()[:1], hello()[:63]], ids=["0", "1", "63"])
async def test_silence_is_hung_up_on_after_the_deadline(
    hurried: VirtualManager, half: bytes
) -> None:
    door = await hurried.open(NAME, [limit()]) / "vcuda.sock"
    with connect(door) as connection:
        connection.sendall(half)

        assert await asyncio.to_thread(receive, connection) is None


async def test_a_hello_in_pieces_is_a_hello(door: Path) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(door))
        for byte in hello():
            await loop.sock_sendall(connection, bytes([byte]))
            await asyncio.sleep(0)
        connection.setblocking(True)
        answer = await asyncio.to_thread(receive, connection)

    assert answer is not None
    assert answer.status == 0
    answer.close()


async def test_callers_who_hang_up_before_their_welcome_hold_no_slot(
    sockets: VirtualManager, door: Path
) -> None:
    for _ in range(20):
        with connect(door) as connection:
            connection.sendall(hello())

    answer = await say(door, OBSERVER)

    assert answer is not None
    answer.close()
    assert pids(sockets) == set()


async def test_a_crowd_of_silent_callers_delays_a_good_one_by_the_deadline_at_most(
    hurried: VirtualManager,
) -> None:
    door = await hurried.open(NAME, [limit()]) / "vcuda.sock"
    crowd = [connect(door) for _ in range(3 * CALLERS)]

    answer = await say(door)

    assert answer is not None
    assert answer.status == 0
    answer.close()
    for connection in crowd:
        connection.close()


async def test_hundreds_of_callers_of_all_kinds_leave_no_descriptor_behind(
    sockets: VirtualManager, door: Path
) -> None:
    def storm() -> None:
        for number in range(150):
            with connect(door) as connection:
                if number % 3 == 1:
                    connection.sendall(b"\0\1\2")
            if number % 3 == 2:
                patient_exchange(door, OBSERVER).close()

    await asyncio.to_thread(storm)
    before = open_descriptors()

    for _ in range(3):
        await asyncio.to_thread(storm)

    assert await eventually(lambda: open_descriptors() == before)


def first_free_descriptor() -> int:
    free = os.dup(0)
    os.close(free)
    return free


async def test_a_manager_out_of_descriptors_serves_again_when_it_has_some(
    door: Path, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connect(door) as connection:
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free_descriptor(), hard))
        try:
            assert await eventually(lambda: "cannot accept" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connection.sendall(hello())
        answer = await asyncio.to_thread(receive, connection)

    assert answer is not None
    assert answer.status == 0
    answer.close()
