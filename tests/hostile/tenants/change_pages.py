"""All that a process can try on what it was handed, as root or as nobody; what came of it.

Words: `root`, `bare` (root without capabilities) or `nobody`; then how many seconds to stay.
"""

import mmap
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import tenant

CONFIG = "/etc/vcuda/config"

welcome = tenant.hello()
assert welcome is not None
assert welcome.status == 0, welcome.reason
match sys.argv[1]:
    case "bare":
        tenant.drop_capabilities()
    case "nobody":
        tenant.become_nobody()
books = welcome.books
size = os.fstat(books).st_size


def execute() -> None:
    os.pwrite(books, b"#!/bin/true\n", 1 << 12)
    os.execve(books, ["books"], {})


def write_config() -> None:
    with open(CONFIG, "r+b") as file:  # noqa: PTH123
        file.write(b"x")


def write_again(descriptor: int) -> None:
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    mmap.mmap(again, 4096)
    os.pwrite(again, b"x", 0)


def change_mode() -> None:
    os.fchmod(books, 0o4755)


def with_config(change: Callable[[int], object]) -> Callable[[], None]:
    def tried() -> None:
        descriptor = os.open(CONFIG, os.O_RDONLY)
        change(descriptor)

    return tried


TRIES: dict[str, Callable[[], object]] = {
    "truncate books": lambda: os.ftruncate(books, 0),
    "shorten books": lambda: os.ftruncate(books, 100),
    "grow books": lambda: os.ftruncate(books, 2 * size),
    "allocate books": lambda: os.posix_fallocate(books, 0, 1 << 30),
    "set-uid books": change_mode,
    "execute books": execute,
    "write config": write_config,
    "truncate config": lambda: os.truncate(CONFIG, 0),
    "chmod config": lambda: Path(CONFIG).chmod(0o4777),
    "write config again": with_config(write_again),
    "fchmod config": with_config(lambda descriptor: os.fchmod(descriptor, 0o4777)),
    "list directory": lambda: list(Path("/etc/vcuda").iterdir()),
}
if len(welcome.descriptors) > 1:
    TRIES["write config by descriptor"] = partial(write_again, welcome.descriptors[0])
for name, attempt in TRIES.items():
    try:
        attempt()
    except OSError as error:
        tenant.say(name, "refused", error.errno)
    else:
        tenant.say(name, "done")
tenant.say("descriptors", len(welcome.descriptors), "bytes", os.fstat(books).st_size)
time.sleep(float(sys.argv[2]))
