"""What Allocate will be asked next, worked out while the kubelet is on its way.

GetPreferredAllocation names the device IDs that the kubelet then asks for, nearly always. So when
that answer has left, the decision is made, the directory is opened, the journal's line and the
answer are put into words; an Allocate that asks this, and finds all that was looked at unchanged,
only has to write that line. Any other decides as if nobody had thought of it before. Nobody is
promised anything here: a directory that is not asked for is one of which the journal says nothing.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from dataclasses import dataclass

from gpumanager.errors import GpuManagerError
from gpumanager.grants.journal import Allocation
from gpumanager.isolation.answer import Answer

logger = logging.getLogger(__name__)

Ground = tuple[object, ...]
"""All that a decision looks at. Each is replaced, never altered, so the same one says the same."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What an Allocate for these IDs would be answered. decided: its time is when this
    was foreseen, a moment before it is promised."""

    ground: Ground
    resource: str
    ids: frozenset[str]
    decided: Allocation
    answer: Answer


class Foresight:
    """Thinks about one call at a time, in the running loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._known: Foreseen | None = None

    def begin(self, work: Coroutine[None, None, Foreseen | None]) -> None:
        """As soon as whoever calls has left; what was foreseen before is not."""
        self._known = None
        self._task = asyncio.create_task(self._foresee(work))

    def take(self, ground: Ground, resource: str, ids: Collection[str]) -> Foreseen | None:
        """What was foreseen, if this was; once."""
        known, self._known = self._known, None
        if known is None or known.resource != resource or known.ids != frozenset(ids):
            return None
        same = all(a is b for a, b in zip(known.ground, ground, strict=True))
        return known if same else None

    async def _foresee(self, work: Coroutine[None, None, Foreseen | None]) -> None:
        try:
            self._known = await work
        except (GpuManagerError, OSError) as error:
            logger.debug("nothing is foreseen, Allocate will meet it itself: %s", error)
