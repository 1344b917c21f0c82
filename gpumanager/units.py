"""Units: bytes, memory blocks, cores."""

import re
from typing import Final, NewType

Bytes = NewType("Bytes", int)

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

MEMORY_BLOCK: Final = Bytes(256 * MIB)
"""One `tencent.com/vcuda-memory`."""

LEAST_MIB: Final = 1024
"""From so many on, a number of blocks may be one of MiB: 1024 blocks are 256 GiB."""

CORES_PER_GPU: Final = 100
"""`tencent.com/vcuda-core` of a whole GPU."""

_SIZES: Final = {"": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
_BYTES: Final = re.compile(r"\s*(\d+)\s*([KMGT]iB)?\s*")
MOST_DIGITS: Final = 20
"""Of a quantity: Kubernetes cuts at 19."""


def parse_bytes(text: str) -> Bytes:
    """Read `16GiB`, `512 MiB` or a plain number of bytes; raises ValueError."""
    match = _BYTES.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size: write for example 16GiB, 512MiB or bytes")
    return Bytes(int(match[1]) * _SIZES[match[2] or ""])


def natural_number(text: str, digits: int = MOST_DIGITS) -> int | None:
    """Return a number that somebody else wrote, of at most so many ASCII digits; None for all else.

    Example: an annotation of 5,000 digits, which `int` refuses with an error.
    """
    text = text.strip()
    return int(text) if len(text) <= digits and text.isascii() and text.isdigit() else None


def blocks(amount: Bytes) -> int:
    """Return the whole memory blocks in `amount`."""
    return amount // MEMORY_BLOCK


def bytes_for_blocks(number: int) -> str:
    """Return advice on so many blocks where bytes were meant; empty where blocks may be meant.

    Example: `2Gi` of `tencent.com/vcuda-memory` is 2147483648 blocks, and 8 are meant.
    """
    if number < MIB:
        return ""
    return f"memory is counted in blocks of 256 MiB: write {-(-number // MEMORY_BLOCK)}"


def mib_for_blocks(number: int) -> str:
    """Return more advice on more blocks than a GPU has, where MiB may be meant; else empty.

    Example: HAMi and others count MiB, so that 4096 are 4 GiB; as blocks they are 1 TiB.
    """
    if number < LEAST_MIB:
        return ""
    return f"; if {number:,} MiB are meant, write {-(-number * MIB // MEMORY_BLOCK)}"


def count_of(number: int, thing: str) -> str:
    """Format for people: `1 GPU`, `2 GPUs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_bytes(amount: int) -> str:
    """Format for people, in the largest unit with a number of at least 1, at most two decimals."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if amount >= _SIZES[unit]:
            return f"{amount / _SIZES[unit]:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{amount} B"
