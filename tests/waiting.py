"""Wait for something that another process, thread or task does, with a bound."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LOOK = 0.01
SECONDS = 120.0
"""After which a test is stuck; a busy machine may need many."""

Found = TypeVar("Found")


async def until(look: Callable[[], Found], seconds: float = SECONDS) -> Found:
    """What `look` finds, once it finds something; TimeoutError where it never does.

    The seconds are counted in looks: on a busy machine, where we come to look less often, they last
    longer.
    """
    for _ in range(round(seconds / LOOK)):
        if found := look():
            return found
        await asyncio.sleep(LOOK)
    raise TimeoutError


def has_ended(pid: int) -> bool:
    """Gone, or waiting to be collected by a parent that is not ours."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
