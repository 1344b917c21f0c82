"""The store of grants: the journal in memory, its file, and the isolation back ends.

A grant is written to disk before Allocate is answered, and its release is written before the back
end removes its limits. Wherever the agent stops in between, a restart finds the whole grant or none
of it. A directory of a back end without a grant in the journal was never answered to a kubelet.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar, TypeVarTuple

from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnreadable, JournalUnwritable
from gpumanager.ids import AllocationID

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BackEnds(Protocol):
    """Enforces the limits of grants: `isolation.table`."""

    async def update(self, grant: Grant) -> None:
        """Enforce this grant from now on. Raises GpuManagerError and OSError."""

    async def release(self, name: AllocationID) -> None:
        """Remove its limits; an unknown name is no error."""


class GrantStore:
    """The owner of the journal. Not for concurrent use.

    lock: to be held from a decision to the end of its change, whichever interface decides.
    """

    def __init__(self, file: JournalFile, back_ends: BackEnds) -> None:
        self._file = file
        self._back_ends = back_ends
        self._whole: bool | None = None
        self._writer = ThreadPoolExecutor(1, "journal")  # one thread: changes keep their order
        self.journal = Journal()
        self.lock = asyncio.Lock()
        self.lingering: frozenset[AllocationID] = frozenset()
        """Grants of ended pods of which a container still runs."""

    async def load(self) -> bool:
        """Read the journal, once. False if there is none, or if it is damaged and read in parts.

        A damaged file is kept under another name, which is logged as an error.
        """
        if self._whole is not None:
            return self._whole
        try:
            self.journal = await self._on_disk(self._file.load)
            self._whole = self._file.path.exists()
        except JournalUnreadable as error:
            self._whole = False
            self.journal, aside = await self._on_disk(self._file.set_aside)
            logger.error(  # noqa: TRY400 - the message is complete
                "%s. The file is kept as %s; %d grants were read from it; the agent rebuilds "
                "the others from the kubelet's checkpoint and the container runtime",
                *(error, aside, len(self.journal.grants)),
            )
        return self._whole

    async def serve_again(self, name: AllocationID) -> None:
        """Enforce it after a restart, as it is now; nothing if it has been released since."""
        allocation = self.journal.get(name)
        if allocation is None or allocation.released:
            return
        try:
            await self._back_ends.update(allocation)
        except (GpuManagerError, OSError) as error:
            logger.error("cannot serve allocation %s: %s", name, error)  # noqa: TRY400

    async def tidy(self) -> None:
        """Make room for changes while no call waits; a failure is logged."""
        try:
            await self._on_disk(self._file.tidy, self.journal)
        except JournalUnwritable as error:
            logger.error("%s", error)  # noqa: TRY400

    async def put(self, *changed: Grant) -> None:
        """Write these to disk. Raises JournalUnwritable, and then nothing has changed."""
        await self._save(self.journal.put(*changed))

    def suspect(self, names: Iterable[AllocationID]) -> None:
        """The kubelet gave their devices to another pod; written together with that pod's grant."""
        names = tuple(names)
        if names:
            self.journal = self.journal.suspect(names)

    def clear_suspect(self, names: Iterable[AllocationID]) -> None:
        """Their containers run after all; written together with the next change."""
        known = (self.journal.get(name) for name in names)
        suspect = [one for one in known if one is not None and one.suspect]
        if suspect:
            self.journal = self.journal.put(*(replace(one, suspect=False) for one in suspect))

    async def release(self, names: Iterable[AllocationID]) -> None:
        """Release them. Raises JournalUnwritable, and then nothing has changed."""
        names = tuple(names)
        if names:
            await self._save(self.journal.release(names))
            await self.forget()

    async def forget(self) -> None:
        """Remove the directories of released grants; failed removals are tried again later."""
        for name in [n for n, a in self.journal.grants.items() if a.released]:
            if self.journal.grants[name].legacy:
                self.journal = self.journal.drop([name])
                continue
            if await self.close(name):
                self.journal = self.journal.drop([name])

    async def close(self, name: AllocationID) -> bool:
        """Remove its directory; returns whether it is gone."""
        try:
            await self._back_ends.release(name)
        except (GpuManagerError, OSError) as error:
            logger.warning("cannot remove allocation %s yet: %s", name, error)
            return False
        return True

    async def _save(self, journal: Journal) -> None:
        await self._on_disk(self._file.save, journal)
        self.journal = journal

    async def _on_disk(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run it in the writer's thread, to its end even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._writer, work, *arguments))
