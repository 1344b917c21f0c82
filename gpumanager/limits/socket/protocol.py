"""HELLO and WELCOME as values: bytes in, values out, and back.

The structs are the compiler's (native/include/vcuda_protocol.h). The kernel names the caller
says; what it says of itself is for messages, and its pid for views inside of its own container.
"""

import errno
import os
from dataclasses import dataclass
from typing import Any, Final

from vcuda_shim._shim import ffi, lib

HELLO_SIZE: Final[int] = ffi.sizeof("struct vcuda_hello")
NO_SLOT: Final[int] = lib.VCUDA_NO_SLOT

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What HTTP/2, and so gRPC, begins with (RFC 9113, 3.4)."""

_MAGIC: Final[bytes] = int(lib.VCUDA_PROTOCOL_MAGIC).to_bytes(4, "little")


OLD_SHIM: Final = "the shim in this container is older than its books: start the container again"
"""It wants the configuration handed to it; since then shims open that by themselves."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A caller that speaks as we do.

    observer: only reads, needs no slot. measure: wants to be measured first. pid: its own view.
    keep: it has a slot and has lost its descriptors. persistent: it has more to ask on this
    connection, later.
    """

    observer: bool
    measure: bool
    pid: int
    keep: bool = False
    persistent: bool = False


@dataclass(frozen=True, slots=True)
class HelloRefused:
    """No WELCOME: an errno, and why in words."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Http2:
    """A caller that speaks HTTP/2. begun: all that was received of it, its preface first."""

    begun: bytes


Greeting = Hello | Http2 | HelloRefused
"""What a caller began with."""


def parse_hello(received: bytes) -> Greeting | None:
    """Return what the bytes received so far mean; None while more must come."""
    if received.startswith(PREFACE[: len(received)]):
        return Http2(received) if len(received) >= len(PREFACE) else None
    if not received.startswith(_MAGIC[: len(received)]):
        return HelloRefused(errno.EPROTO, "this socket speaks the vcuda protocol, and gRPC")
    if len(received) < HELLO_SIZE:
        return None
    hello: Any = ffi.from_buffer("struct vcuda_hello *", received)
    spoken = (hello.version, hello.kind, hello.region_abi)
    ours = (lib.VCUDA_PROTOCOL_VERSION, lib.VCUDA_HELLO, lib.VCUDA_REGION_ABI)
    if spoken != ours:
        words = "protocol {}, message {}, layout {}"
        reason = f"shim: {words.format(*spoken)}; manager: {words.format(*ours)}"
        return HelloRefused(errno.EPROTO, reason)
    flags = hello.flags
    if not flags & lib.VCUDA_HELLO_OPENS_CONFIG:
        return HelloRefused(errno.EPROTO, OLD_SHIM)
    return Hello(
        bool(flags & lib.VCUDA_HELLO_OBSERVER),
        bool(flags & lib.VCUDA_HELLO_MEASURE),
        hello.pid,
        bool(flags & lib.VCUDA_HELLO_KEEP),
        bool(flags & lib.VCUDA_HELLO_PERSISTENT),
    )


def welcome(slot: int) -> bytes:
    """Return a WELCOME; the descriptors travel with it."""
    return _welcome(0, slot, "")


def refusal(refused: HelloRefused) -> bytes:
    return _welcome(-refused.number, NO_SLOT, refused.reason)


def _welcome(status: int, slot: int, reason: str) -> bytes:
    message: Any = ffi.new("struct vcuda_welcome *")
    message.magic = lib.VCUDA_PROTOCOL_MAGIC
    message.version = lib.VCUDA_PROTOCOL_VERSION
    message.kind = lib.VCUDA_WELCOME
    message.status = status
    message.slot = slot
    message.reason = reason.encode()[: lib.VCUDA_REASON_SIZE - 1]
    return bytes(ffi.buffer(message))


def refused_by_system(doing: str, error: OSError) -> HelloRefused:
    """Return a refusal for an error of the manager, which may pass: the caller may try again."""
    return HelloRefused(errno.EAGAIN, f"manager: {doing}: {os.strerror(error.errno or errno.EIO)}")
