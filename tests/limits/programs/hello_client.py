"""A process of a container, as far as the manager can tell: says HELLO and uses the regions.

As a program (`python hello_client.py SOCKET [--observer]`) it says HELLO, prints what came back as
one line of JSON, then obeys one command per line: `hold BYTES`, `limit`, `again`, `keep`, `exec`,
`become WORDS`. It ends with its input. With --inherit it keeps its connection, and a child has it
too, which prints its pid and then how it ended.
"""

import json
import mmap
import os
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcuda_shim._shim import ffi, lib

HELLO_SIZE = ffi.sizeof("struct vcuda_hello")
WELCOME_SIZE = ffi.sizeof("struct vcuda_welcome")


def hello(*, opens_config: int = 1, **changes: int) -> bytes:
    """The bytes of a good HELLO, but for `changes`; without opens_config as shims of before."""
    message: Any = ffi.new("struct vcuda_hello *")
    message.magic = lib.VCUDA_PROTOCOL_MAGIC
    message.version = lib.VCUDA_PROTOCOL_VERSION
    message.kind = lib.VCUDA_HELLO
    message.region_abi = lib.VCUDA_REGION_ABI
    message.pid = os.getpid()
    message.program = b"hello_client"
    for name, value in changes.items():
        setattr(message, name, value)
    message.flags |= lib.VCUDA_HELLO_OPENS_CONFIG if opens_config else 0
    return bytes(ffi.buffer(message))


OBSERVER = hello(flags=lib.VCUDA_HELLO_OBSERVER)


@dataclass(frozen=True, slots=True)
class Answer:
    """One WELCOME: its words, the descriptors that came with it, and where the socket lies."""

    status: int
    slot: int
    reason: str
    descriptors: tuple[int, ...]
    directory: Path

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def receive(connection: socket.socket) -> Answer | None:
    """The WELCOME; None if the manager hung up without one."""
    raw, descriptors, _flags, _address = socket.recv_fds(connection, WELCOME_SIZE, 4)
    if len(raw) < WELCOME_SIZE:
        return None
    words: Any = ffi.from_buffer("struct vcuda_welcome *", raw)
    reason: Any = ffi.string(words.reason)
    directory = Path(connection.getpeername()).parent
    return Answer(words.status, words.slot, bytes(reason).decode(), tuple(descriptors), directory)


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(60)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def exchange(path: Path, message: bytes) -> Answer | None:
    with connect(path) as connection:
        connection.sendall(message)
        return receive(connection)


def patient_exchange(path: Path, message: bytes | None = None) -> Answer:
    """As the shim does: who finds the queue full tries again, and so does who is hung up on because
    it got no turn to speak before its time was over."""
    while True:
        with suppress(BlockingIOError, ConnectionError):
            answer = exchange(path, message or hello())
            if answer is not None:
                return answer
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Regions:
    """The mappings a process of the container has. They last as long as this object, no longer."""

    config: Any
    books: Any

    @classmethod
    def of(cls, answer: Answer) -> "Regions":
        with (answer.directory / "config").open("rb") as config:
            pages = mmap.mmap(config.fileno(), 0, access=mmap.ACCESS_READ)
        ledger = mmap.mmap(answer.descriptors[-1], 0, access=mmap.ACCESS_WRITE)
        return cls(
            ffi.from_buffer("struct vcuda_config *", pages),
            ffi.from_buffer("struct vcuda_books *", ledger),
        )

    def hold(self, slot: int, amount: int) -> int:
        """Reserve so many bytes more of the first GPU."""
        self.books.used[0][slot] += amount
        return int(self.books.used[0][slot])

    def memory_limit(self) -> int:
        return int(self.config.limits[0].memory_bytes)


def tell(words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main(path: Path, message: bytes) -> None:
    answer = exchange(path, message)
    if answer is None:
        sys.exit("no answer")
    tell([answer.status, answer.slot, answer.reason])
    if answer.status != 0:
        return
    regions = Regions.of(answer)
    for line in sys.stdin:
        match line.split():
            case ["hold", amount]:
                tell(regions.hold(answer.slot, int(amount)))
            case ["limit"]:
                tell(regions.memory_limit())
            case ["again"]:
                repeated = exchange(path, message)
                tell(None if repeated is None else repeated.slot)
            case ["keep"]:
                kept = exchange(path, hello(flags=lib.VCUDA_HELLO_KEEP))
                tell(None if kept is None else [kept.status, kept.slot, len(kept.descriptors)])
            case ["become", program, *words]:
                os.execvp(program, [program, *words])
            case ["exec"]:
                os.execv(sys.executable, [sys.executable, *sys.argv])


def bequeath(path: Path) -> None:
    """Never returns."""
    connection = connect(path)
    connection.sendall(hello(flags=lib.VCUDA_HELLO_PERSISTENT))
    receive(connection)
    if os.fork() == 0:
        tell(os.getpid())
        tell(["hung up" if not connection.recv(1) else "spoken to", os.getpid()])
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    if "--inherit" in sys.argv:
        bequeath(Path(sys.argv[1]))
    main(Path(sys.argv[1]), OBSERVER if "--observer" in sys.argv else hello())
