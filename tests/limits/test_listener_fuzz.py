"""A socket that anything in a container can write to: whatever comes, the others are served."""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumanager.limits.socket.protocol import PREFACE, Hello, HelloRefused, Http2, parse_hello
from tests.limits.container_process import SECONDS, eventually
from tests.limits.open_door import open_descriptors, say
from tests.limits.programs.hello_client import (
    HELLO_SIZE,
    WELCOME_SIZE,
    connect,
    exchange,
    hello,
)
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures"]

MAGIC = int(lib.VCUDA_PROTOCOL_MAGIC).to_bytes(4, "little")

CHANGES = st.lists(st.tuples(st.integers(0, HELLO_SIZE - 1), st.integers(0, 255)), max_size=3)
NEAR = st.builds(
    lambda changes, end, more: altered(changes)[:end] + more,
    CHANGES,
    st.integers(0, HELLO_SIZE) | st.just(HELLO_SIZE),
    st.binary(max_size=100),
)
"""A HELLO with bytes changed, cut short, or with more behind it."""

MESSAGE = NEAR | st.binary(max_size=300) | st.binary(max_size=300).map(PREFACE.__add__)


def altered(changes: Sequence[tuple[int, int]]) -> bytes:
    message = bytearray(hello())
    for place, value in changes:
        message[place] = value
    return bytes(message)


@dataclass(frozen=True, slots=True)
class Caller:
    """What one connection sends, in pieces of which size, with a descriptor, and whether it stays
    while a good caller is answered."""

    message: bytes
    piece: int
    descriptor: bool
    stays: bool

    def call(self, path: Path) -> socket.socket:
        connection = connect(path)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough
            for start in range(0, len(self.message), self.piece):
                self._send(connection, self.message[start : start + self.piece])
            if not self.stays:
                connection.shutdown(socket.SHUT_WR)
        return connection

    def _send(self, connection: socket.socket, part: bytes) -> None:
        if self.descriptor:
            socket.send_fds(connection, [part], [connection.fileno()])
        else:
            connection.sendall(part)


CALLERS = st.lists(
    st.builds(Caller, MESSAGE, st.sampled_from([1, 7, 63, 1000]), st.booleans(), st.booleans()),
    max_size=10,
)


def heard(connection: socket.socket) -> bytes:
    """All the manager says to this caller until it hangs up."""
    answer = b""
    with connection, contextlib.suppress(ConnectionResetError):
        while part := connection.recv(4096):
            answer += part
    return answer


def play(path: Path, callers: Sequence[Caller]) -> tuple[list[bytes], Any]:
    """What each caller heard; and, while they were all there, what a good one did."""
    connections = [caller.call(path) for caller in callers]
    good = exchange(path, hello())
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
    return [heard(connection) for connection in connections], good


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(callers=CALLERS)
async def test_a_good_hello_is_answered_among_any_others_and_nobody_stays(
    door: Path, callers: list[Caller]
) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))
    first = await say(door)
    assert first is not None
    first.close()
    await asyncio.to_thread(heard, Caller(PREFACE, 24, descriptor=False, stays=False).call(door))
    before = open_descriptors()

    answers, good = await asyncio.wait_for(asyncio.to_thread(play, door, callers), SECONDS)

    assert (good.status, good.slot) == (0, first.slot)
    good.close()
    for caller, answer in zip(callers, answers, strict=True):
        if caller.message.startswith(PREFACE):
            continue  # it heard gRPC's own words
        assert len(answer) in (0, WELCOME_SIZE)
        assert answer[:4] in (b"", MAGIC)
        if isinstance(parse_hello(caller.message[:HELLO_SIZE]), Hello):
            assert len(answer) == WELCOME_SIZE or len(caller.message) > HELLO_SIZE
    assert await eventually(lambda: open_descriptors() <= before)
    assert faults == []


@given(message=MESSAGE, piece=st.integers(1, 70))
def test_what_a_message_says_does_not_depend_on_the_pieces_it_comes_in(
    message: bytes, piece: int
) -> None:
    whole = parse_hello(message[:HELLO_SIZE])
    verdicts = [parse_hello(message[:end]) for end in range(piece, HELLO_SIZE, piece)]

    settled = [verdict for verdict in verdicts if verdict is not None]
    assert all(type(verdict) is type(whole) for verdict in settled)
    assert all(isinstance(verdict, HelloRefused | Http2) for verdict in settled)
