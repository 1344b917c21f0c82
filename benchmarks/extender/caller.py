"""Connections to the extender that cost little: prepared bytes out, bytes in, nothing parsed."""

import re
import select
import socket
from collections.abc import Sequence
from typing import Final

LARGEST: Final = 4 << 20
"""Answer."""
_LENGTH: Final = re.compile(rb"Content-Length: (\d+)", re.IGNORECASE)


class Connection:
    """One that stays open, and one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._said = bytearray(LARGEST)
        self._view = memoryview(self._said)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def ask(self, path: str, *parts: bytes | memoryview) -> memoryview:
        """The answer's body, which is good until the next question; fails if it is no success."""
        self.send(path, *parts)
        return self.receive()

    def send(self, path: str, *parts: bytes | memoryview) -> None:
        length = sum(map(len, parts))
        head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        whole = [head % (path.encode(), length), *parts]
        sent = self._socket.sendmsg(whole)
        if sent < len(whole[0]) + length:
            self._socket.sendall(b"".join(whole)[sent:])

    def receive(self) -> memoryview:
        here, end = 0, -1
        while end < 0:
            here += self._more(here)
            end = self._said.find(b"\r\n\r\n", 0, here)
        head = bytes(self._view[:end])
        length = _LENGTH.search(head)
        if not head.startswith(b"HTTP/1.1 200") or length is None:
            raise SystemExit(f"the extender said: {bytes(self._view[:here]).decode()[:400]}")
        whole = end + 4 + int(length[1])
        while here < whole:
            here += self._more(here)
        return self._view[end + 4 : whole]

    def _more(self, here: int) -> int:
        got = self._socket.recv_into(self._view[here:])
        if not got:
            raise SystemExit("the extender ended the connection")
        return got


class Pool:
    """Connections of which each is asked something while the answer of another is awaited.

    They are made when they are needed: the extender lets go of who says nothing.
    """

    def __init__(self, port: int, most: int) -> None:
        self._port = port
        self._most = most
        self._idle: list[Connection] = []
        self._busy: dict[int, tuple[Connection, int]] = {}
        self._poll = select.poll()

    def send(self, path: str, body: bytes, mark: int) -> None:
        """Ask one that is idle; see `full`. mark: tells the answer from others."""
        connection = self._idle.pop() if self._idle else Connection(self._port)
        connection.send(path, body)
        self._busy[connection.fileno()] = (connection, mark)
        self._poll.register(connection, select.POLLIN)

    @property
    def full(self) -> bool:
        return len(self._busy) == self._most

    @property
    def waiting(self) -> int:
        return len(self._busy)

    def answers(self, milliseconds: int) -> Sequence[tuple[int, bytes]]:
        """Marks and bodies that are there, or come in time."""
        found = []
        for file, _ in self._poll.poll(milliseconds) if self._busy else ():
            connection, mark = self._busy.pop(file)
            self._poll.unregister(file)
            found.append((mark, bytes(connection.receive())))
            self._idle.append(connection)
        return found

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
