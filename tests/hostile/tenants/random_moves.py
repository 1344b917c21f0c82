"""Moves of a hostile tenant, at random: on its books, on what else it was handed, at its socket.

    random_moves.py SEED SECONDS KIND: `pages` or `hello`

Prints how many it made. What a move answers is of no interest here.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import socket
import struct
import sys
import time
from pathlib import Path

import tenant

KEEP_SIZE, PUNCH_HOLE = 1, 2
LIBC = ctypes.CDLL(None)
CONFIG = "/etc/vcuda/config"
OFD_SETLK = 37
NUMBERS = (0, 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 10**13, 2**64 - 1)

chance = random.Random(int(sys.argv[1]))
ends = time.monotonic() + float(sys.argv[2])


def a_number() -> int:
    return chance.choice((*NUMBERS, chance.getrandbits(64), chance.getrandbits(20)))


def write_words(page: mmap.mmap, _books: int) -> None:
    """A few words; half of them in what all slots have, the meters and the head of the slots."""
    for _ in range(chance.randrange(1, 200)):
        end = len(page) if chance.random() < 0.5 else 1 << 14
        tenant.write(page, 8 * chance.randrange(end // 8), a_number())


def write_run(page: mmap.mmap, _books: int) -> None:
    """The same word all over a part."""
    first = 8 * chance.randrange(len(page) // 8)
    count = min((len(page) - first) // 8, chance.randrange(1, 4096))
    page[first : first + 8 * count] = struct.pack("<Q", a_number()) * count


def truncate(_page: mmap.mmap, books: int) -> None:
    os.ftruncate(books, chance.choice((0, 100, 4096, 2 * os.fstat(books).st_size)))


def allocate(_page: mmap.mmap, books: int) -> None:
    os.posix_fallocate(books, chance.randrange(1 << 20), 1 << chance.randrange(12, 24))


def punch_hole(_page: mmap.mmap, books: int) -> None:
    first = 4096 * chance.randrange(64)
    part = (ctypes.c_long(first), ctypes.c_long(4096 * chance.randrange(1, 64)))
    LIBC.fallocate(books, KEEP_SIZE | PUNCH_HOLE, *part)


def seal(_page: mmap.mmap, books: int) -> None:
    fcntl.fcntl(books, fcntl.F_ADD_SEALS, chance.choice((1, 2, 4, 6, 16, 8)))


def open_again(_page: mmap.mmap, books: int) -> None:
    with contextlib.ExitStack() as closing:
        path = chance.choice((f"/proc/self/fd/{books}", CONFIG))
        again = os.open(path, chance.choice((os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_TRUNC)))
        closing.callback(os.close, again)
        chance.choice((lambda: os.pwrite(again, b"x" * 64, 0), lambda: os.ftruncate(again, 0)))()


def change_mode(_page: mmap.mmap, books: int) -> None:
    os.fchmod(books, chance.choice((0, 0o777, 0o4755)))


def lock(_page: mmap.mmap, books: int) -> None:
    row = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, chance.randrange(1100), 1100, 0)
    fcntl.fcntl(books, OFD_SETLK, row)


def die_with_a_slot(_page: mmap.mmap, _books: int) -> None:
    if (child := os.fork()) == 0:
        with contextlib.suppress(OSError):
            flags = (0, tenant.OBSERVER, tenant.MEASURE, tenant.PERSISTENT)
            tenant.hello(flags=chance.choice(flags) | chance.choice(flags))
        os._exit(0)
    os.waitpid(child, 0)


ON_PAGES = (
    *(write_words, write_words, write_run, truncate, allocate, punch_hole, seal),
    *(open_again, change_mode, lock, die_with_a_slot),
)


def on_pages() -> None:
    welcome = tenant.hello()
    if welcome is None or welcome.status != 0:
        time.sleep(0.05)
        return
    page = tenant.books(welcome.books)
    for _ in range(50):
        with contextlib.suppress(OSError):
            chance.choice(ON_PAGES)(page, welcome.books)
    page.close()
    for descriptor in welcome.descriptors:
        os.close(descriptor)


def words_of_hello() -> bytes:
    """One that is right but for some bits, or of another length, or nonsense."""
    row = (tenant.MAGIC, tenant.VERSION, tenant.HELLO, tenant.ABI, chance.getrandbits(4))
    said = bytearray(struct.pack("<IHHIIi44s", *row, os.getpid(), b"x"))
    match chance.randrange(4):
        case 0:
            return chance.randbytes(chance.randrange(300))
        case 1:
            return bytes(said[: chance.randrange(len(said))])
        case 2:
            return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(chance.randrange(200))
    for _ in range(chance.randrange(4)):
        said[chance.randrange(len(said))] = chance.randrange(256)
    return bytes(said)


def on_socket() -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(0.2)
        with contextlib.suppress(OSError):
            connection.connect(tenant.SOCKET)
            connection.send(words_of_hello())
            if chance.random() < 0.8:
                for descriptor in socket.recv_fds(connection, 128, 4)[1]:
                    os.close(descriptor)


MOVE = {"pages": on_pages, "hello": on_socket}[sys.argv[3]]
Path("/proc/self/oom_score_adj").write_text("1000")
moves = 0
while time.monotonic() < ends:
    with contextlib.suppress(OSError):
        MOVE()
    moves += 1
tenant.say("moves", moves)
