"""Long work in small pieces, between which others have their turn.

Work that looks at every node is written as a generator that pauses where a piece is done: pure, and
the same whoever drives it. What it looks at must not change meanwhile.
"""

import asyncio
from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]


async def in_turns(work: Work[T]) -> T:
    """What it comes to; whoever waits for the loop is served between two pieces."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
        await asyncio.sleep(0)


def portions(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`rows`, so many at a time."""
    return (rows[begin : begin + size] for begin in range(0, len(rows), size))
