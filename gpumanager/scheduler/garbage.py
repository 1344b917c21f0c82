"""When Python looks for garbage: often among what is young, and else while nobody waits.

A large cluster is half a million objects that stay; to look through them takes longer than any
answer may. So while they are read nothing is looked for, then they are set aside, and what a day
adds to them is looked through, and set aside too, in a second in which nobody asks.
"""

import asyncio
import gc
from typing import Final

from gpumanager.scheduler.service import Extender

YOUNG: Final = (700, 2)
"""By default what has survived is looked through in portions ten times as large, of 7 ms."""
NEVER: Final = 1_000_000
QUIET_SECONDS: Final = 1.0
MANY: Final = 20
"""Portions of young objects that have survived, until they are worth looking through."""
TOO_MANY: Final = 500
"""Until they are looked through even though somebody asks."""


async def collect_in_quiet(extender: Extender) -> None:
    """For as long as the task lives."""
    gc.disable()
    try:
        await extender.nodes.listed.wait()
        await extender.pods.listed.wait()
    finally:
        gc.enable()
    gc.set_threshold(*YOUNG, NEVER)
    _set_aside()
    while True:
        asked = extender.asked
        await asyncio.sleep(QUIET_SECONDS)
        portions = gc.get_count()[2]
        if portions >= (MANY if asked == extender.asked else TOO_MANY):
            _set_aside()


def _set_aside() -> None:
    gc.collect()
    gc.freeze()
