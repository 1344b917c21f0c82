"""Cooperative work: long computations in small pieces, with requests answered in between.

Work on every node is a generator that yields after each piece. It is pure, and independent of what
drives it. What it reads must not change meanwhile.
"""

import asyncio
from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]


async def run_cooperatively(work: Work[T]) -> T:
    """Return its result; the event loop runs other tasks between two pieces."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
        await asyncio.sleep(0)


def batches(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield `rows`, so many at a time."""
    return (rows[begin : begin + size] for begin in range(0, len(rows), size))
