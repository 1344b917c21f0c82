"""Wait for something that another process does, with a bound."""

import asyncio
from collections.abc import Callable
from pathlib import Path


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll until it holds; TimeoutError where it never does."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nobody could set an event
            await asyncio.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Gone, or waiting to be collected by a parent that is not ours."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
