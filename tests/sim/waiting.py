"""Wait for something that another process does, with a bound."""

import asyncio
from collections.abc import Callable
from pathlib import Path

LOOK = 0.01
SECONDS = 120.0
"""After which a test is stuck; a busy machine may need many."""


async def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Poll until it holds; TimeoutError where it never does.

    The seconds are counted in looks: on a busy machine, where we come to look less often, they last
    longer.
    """
    for _ in range(round(seconds / LOOK)):
        if condition():
            return
        await asyncio.sleep(LOOK)
    raise TimeoutError


def has_ended(pid: int) -> bool:
    """Gone, or waiting to be collected by a parent that is not ours."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
