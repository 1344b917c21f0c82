"""Connections that processes keep to ask again: as long as these live, and no longer."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.socket import listener
from gpumanager.limits.socket.bounds import Descriptors
from gpumanager.limits.socket.peers import send_welcome
from tests.limits.container_process import StartProcess, eventually
from tests.limits.metered_manager import Manage
from tests.limits.open_door import NAME, limit, pids
from tests.limits.programs.hello_client import Answer, connect, hello, receive
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures"]

FIRST = hello(flags=lib.VCUDA_HELLO_PERSISTENT)
MEASURE = hello(flags=lib.VCUDA_HELLO_PERSISTENT | lib.VCUDA_HELLO_MEASURE)
KEEP = hello(flags=lib.VCUDA_HELLO_PERSISTENT | lib.VCUDA_HELLO_KEEP)
OBSERVER = hello(flags=lib.VCUDA_HELLO_PERSISTENT | lib.VCUDA_HELLO_OBSERVER)


async def ask(connection: socket.socket, message: bytes) -> Answer | None:
    def exchange() -> Answer | None:
        connection.sendall(message)
        answer = receive(connection)
        if answer is not None:
            answer.close()
        return answer

    return await asyncio.to_thread(exchange)


async def hung_up(connection: socket.socket) -> bool:
    return await asyncio.to_thread(connection.recv, 1) == b""


def open_sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += str(descriptor.readlink()).startswith("socket:")
    return count


async def test_a_process_asks_again_on_the_connection_that_it_has(
    sockets: VirtualManager, door: Path
) -> None:
    with connect(door) as connection:
        answers = [await ask(connection, message) for message in (FIRST, MEASURE, KEEP, FIRST)]

    assert [(answer.status, answer.slot) for answer in answers if answer] == [
        (0, 0),
        (-errno.ENODATA, -1),  # this manager does not measure
        (0, 0),
        (0, 0),
    ]
    assert pids(sockets) == {os.getpid()}


@pytest.mark.parametrize("message", [hello(), OBSERVER, KEEP], ids=["plain", "observer", "refused"])
async def test_a_caller_that_has_no_slot_or_wants_no_more_is_hung_up_on(
    door: Path, message: bytes
) -> None:
    with connect(door) as connection:
        assert await ask(connection, message) is not None
        assert await hung_up(connection)


async def test_a_process_has_one_connection_the_newest(door: Path) -> None:
    with connect(door) as older, connect(door) as newer:
        await ask(older, FIRST)
        await ask(newer, FIRST)

        assert await hung_up(older)
        assert await ask(newer, FIRST) is not None


async def test_a_connection_ends_with_its_process_whoever_has_inherited_it(
    sockets: VirtualManager, door: Path, start_process: StartProcess
) -> None:
    """The kernel names the caller by a pid, which another process may have by then."""
    process = await start_process(door, "--inherit")
    heir = await process.answer()

    process.process.kill()

    assert await process.answer() == ["hung up", heir]
    assert pids(sockets) == set()
    assert process.process.stdout is not None
    assert await process.process.stdout.read() == b""  # the heir has ended, too


@pytest.mark.parametrize("ends", [socket.socket.close, lambda one: one.shutdown(socket.SHUT_WR)])
async def test_a_connection_that_its_process_closes_costs_nothing_more(
    door: Path, ends: Callable[[socket.socket], None]
) -> None:
    before = open_sockets()
    connection = connect(door)
    await ask(connection, FIRST)

    ends(connection)
    ours = connection.fileno() >= 0
    gone = await eventually(lambda: open_sockets() <= before + ours)
    connection.close()

    assert gone


async def test_where_descriptors_are_short_connections_are_not_kept(
    manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Descriptors, "allowed", lambda: Descriptors(pidfds=2))
    door = await manage().open(NAME, [limit()]) / "vcuda.sock"

    with connect(door) as connection:
        answer = await ask(connection, FIRST)
        closed = await hung_up(connection)

    assert answer is not None
    assert (answer.status, closed) == (0, True)


async def test_while_others_wait_who_asks_on_has_to_say_all_at_once(
    manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = Descriptors(callers=1)
    monkeypatch.setattr(Descriptors, "allowed", lambda: descriptors)
    door = await manage().open(NAME, [limit()]) / "vcuda.sock"

    with connect(door) as connection:
        await ask(connection, FIRST)
        assert await eventually(lambda: descriptors.callers_now == 0)
        with connect(door):  # one that says nothing
            assert await eventually(lambda: descriptors.callers_now == 1)
            assert await ask(connection, KEEP) is not None

            connection.sendall(KEEP[:10])

            assert await hung_up(connection)


@pytest.fixture
async def four_calls(manage: Manage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The socket of a manager that answers four calls and then none for long."""
    monkeypatch.setattr(listener, "CALLS_AT_ONCE", 4)
    monkeypatch.setattr(listener, "CALLS_PER_SECOND", 0.001)
    return await manage().open(NAME, [limit()]) / "vcuda.sock"


async def test_a_process_that_asks_too_often_on_its_connection_loses_it(four_calls: Path) -> None:
    with connect(four_calls) as connection:
        answers = [await ask(connection, FIRST) for _ in range(5)]
        closed = await hung_up(connection)

    assert [answer.status for answer in answers if answer] == [0] * 4 + [-errno.EAGAIN]
    assert closed


async def test_a_connection_that_is_closed_at_once_counts_as_a_call(four_calls: Path) -> None:
    for _ in range(4):
        connect(four_calls).close()
        await asyncio.sleep(0)
    with connect(four_calls) as connection:
        connection.sendall(FIRST)  # before the manager sees that there is a call
        answer = await asyncio.to_thread(receive, connection)

    assert answer is not None
    assert answer.status == -errno.EAGAIN


def test_a_caller_whose_answer_cannot_be_sent_is_hung_up_on() -> None:
    """Else all later answers on its connection would be taken for earlier ones."""
    ours, theirs = socket.socketpair()
    gone = os.dup(0)
    os.close(gone)
    with ours, theirs:
        assert not send_welcome(ours, 0, [gone])
        assert theirs.recv(1) == b""


async def test_a_manager_that_stops_hangs_up(sockets: VirtualManager, door: Path) -> None:
    with connect(door) as connection:
        await ask(connection, FIRST)

        await sockets.stop()

        assert await hung_up(connection)
