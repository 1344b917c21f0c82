"""A caller of gRPC that is hardly there: one blocking socket, and HTTP/2 frames made beforehand.

A real kubelet's client is compiled; Python's own takes half of the time of a call that asks for
nothing. This one writes a request's frames at once and reads until the trailers are there, so that
what is measured is the other side, the kernel's two switches, and some 30 us of Python. It is no
client for anything else: headers are literals (RFC 7541, 6.2.2), the other side is told to keep no
table, a request fits into the first window of a stream (RFC 9113, 6.9.2: 65,535 bytes), and an
answer without a message is an error, whatever its trailers say.
"""

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK: Final = 1
"""Of SETTINGS and PING."""
END_STREAM, END_HEADERS = 1, 4
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4
WINDOW: Final = (1 << 31) - 1
"""Bytes: nobody ever waits for us to take more."""
FRAME: Final = 16384
"""Bytes that anybody takes in one frame."""
SECONDS: Final = 10.0
"""Bound for one call."""


class CallFailed(Exception):
    """No message came back."""


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class ThinCaller:
    """One connection to a unix socket, one call at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(SECONDS)
        self._socket.connect(str(path))
        settings = struct.pack("!HIHI", HEADER_TABLE_SIZE, 0, INITIAL_WINDOW_SIZE, WINDOW)
        more = struct.pack("!I", WINDOW - 65535)
        hello = frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, more)
        self._socket.sendall(PREFACE + hello)
        self._received = b""
        self._streams = itertools.count(1, 2)

    def call(self, method: str, message: bytes) -> tuple[float, bytes]:
        """Seconds from before its first byte leaves until the trailers are here, and the answer.

        method: its path, `/package.Service/Name`. Raises CallFailed, OSError.
        """
        stream = next(self._streams)
        request = b"".join(request_frames(stream, method, message))
        begin = time.perf_counter()
        self._socket.sendall(request)
        answer = self._answer(stream)
        seconds = time.perf_counter() - begin
        if len(answer) < 5:  # compressed or not, and four bytes of length
            raise CallFailed(f"{self._path}: {method}: no answer but a status")
        return seconds, answer[5:]

    def close(self) -> None:
        self._socket.close()

    def _answer(self, stream: int) -> bytes:
        """All data of it, to its end."""
        received = b""
        for one in self._frames():
            if one.kind == GOAWAY or (one.kind == RST_STREAM and one.stream == stream):
                raise CallFailed(f"{self._path}: hung up")
            if one.stream != stream:
                self._courtesy(one)
                continue
            received += one.payload if one.kind == DATA else b""
            if one.kind in {DATA, HEADERS} and one.flags & END_STREAM:
                return received
        raise CallFailed(f"{self._path}: closed")

    def _courtesy(self, one: Frame) -> None:
        if one.kind in {SETTINGS, PING} and not one.flags & ACK:
            payload = one.payload if one.kind == PING else b""
            self._socket.sendall(frame(one.kind, ACK, 0, payload))

    def _frames(self) -> Iterator[Frame]:
        """Of this call, and of the connection between; none is padded by gRPC."""
        while True:
            while len(self._received) >= 9:  # a frame's head
                high, low, kind, flags, stream = struct.unpack_from("!BHBBI", self._received)
                end = 9 + (high << 16 | low)
                if len(self._received) < end:
                    break
                payload, self._received = self._received[9:end], self._received[end:]
                yield Frame(kind, flags, stream, payload)
            more = self._socket.recv(1 << 16)
            if not more:
                return
            self._received += more


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = struct.pack("!BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream)
    return head + payload


def request_frames(stream: int, method: str, message: bytes) -> Iterator[bytes]:
    """One request with one message."""
    yield frame(HEADERS, END_HEADERS, stream, request_headers(method))
    body = struct.pack("!BI", 0, len(message)) + message
    pieces = [body[n : n + FRAME] for n in range(0, len(body), FRAME)]
    for piece in pieces[:-1]:
        yield frame(DATA, 0, stream, piece)
    yield frame(DATA, END_STREAM, stream, pieces[-1])


def request_headers(method: str) -> bytes:
    """As a gRPC client sends them, each a literal."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": "thin",
    }
    return b"".join(b"\0" + text(name) + text(value) for name, value in fields.items())


def text(words: str) -> bytes:
    """Up to 126 characters, as they are."""
    return bytes([len(words)]) + words.encode()
