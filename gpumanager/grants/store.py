"""The store of grants: the journal, its file, and the back ends that hold what it says.

A grant is on the disk before its container is told of it, and it is released there before its back
end lets go of it. Whenever the agent stops, a restart finds all of it or nothing. What a back end
holds and the journal does not have was never granted to anybody.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar, TypeVarTuple

from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import DevicePluginSource, Grant, Source
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnreadable, JournalUnwritable
from gpumanager.virtual.values import AllocationID

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BackEnds(Protocol):
    """Holds containers to their grants: `isolation.table`."""

    async def update(self, grant: Grant) -> None:
        """It is held to this from now on. Raises GpuManagerError and OSError."""

    async def release(self, name: AllocationID) -> None:
        """It holds nothing any more; one that is not known is no error."""


class GrantStore:
    """One owner of the journal. Not for concurrent use: the allocator's lock guards it.

    own: where the grants of the interface come from that this store is of.
    """

    def __init__(
        self, file: JournalFile, isolation: BackEnds, own: type[Source] = DevicePluginSource
    ) -> None:
        self._own = own
        self._file = file
        self._isolation = isolation
        self._writer = ThreadPoolExecutor(1, "journal")  # one thread: changes keep their order
        self.journal = Journal()
        self._live: tuple[Journal, tuple[Grant, ...]] = (self.journal, ())
        self.lingering: frozenset[AllocationID] = frozenset()
        """Whose container was seen to run although its pod has ended."""

    def live(self) -> tuple[Grant, ...]:
        """Those of this interface that hold something; the same tuple until that changes."""
        journal, live = self._live
        if journal is not self.journal:
            live = tuple(one for one in self.journal.live() if isinstance(one.source, self._own))
            self._live = self.journal, live
        return live

    def others(self) -> tuple[Grant, ...]:
        """Those of other interfaces that hold something. Their GPUs are not for this one."""
        return tuple(one for one in self.journal.live() if not isinstance(one.source, self._own))

    async def load(self) -> bool:
        """Take up the journal; False where there is none, or only what is whole of a damaged one.

        A damaged one is kept under another name, which is said loudly.
        """
        try:
            self.journal = await self._on_disk(self._file.load)
        except JournalUnreadable as error:
            self.journal, aside = await self._on_disk(self._file.set_aside)
            logger.error(  # noqa: TRY400 - it says all there is to say
                "%s. Kept as %s; %d grants in it are whole, others are taken from what the "
                "kubelet and the container runtime know",
                *(error, aside, len(self.journal.grants)),
            )
            return False
        return self._file.path.exists()

    async def serve_again(self, name: AllocationID) -> None:
        """Hold it again after a start, as it is now; not if it has been released since."""
        allocation = self.journal.get(name)
        if allocation is None or allocation.released:
            return
        try:
            await self._isolation.update(allocation)
        except (GpuManagerError, OSError) as error:
            logger.error("allocation %s is not served: %s", name, error)  # noqa: TRY400

    async def tidy(self) -> None:
        """Make room for changes while nobody waits; what cannot be written is said."""
        try:
            await self._on_disk(self._file.tidy, self.journal)
        except JournalUnwritable as error:
            logger.error("%s", error)  # noqa: TRY400

    async def put(self, *changed: Grant) -> None:
        """Raises JournalUnwritable, and then nothing has changed."""
        await self._save(self.journal.put(*changed))

    def doubt(self, names: Iterable[AllocationID]) -> None:
        """Others are given what these hold; on the disk with the grant to those others."""
        names = tuple(names)
        if names:
            self.journal = self.journal.doubt(names)

    def trust(self, names: Iterable[AllocationID]) -> None:
        """What these hold is theirs after all; on the disk with whatever comes next."""
        known = (self.journal.get(name) for name in names)
        doubted = [one for one in known if one is not None and one.doubted]
        if doubted:
            self.journal = self.journal.put(*(replace(one, doubted=False) for one in doubted))

    async def release(self, names: Iterable[AllocationID]) -> None:
        """They hold nothing any more. Raises JournalUnwritable, and then they still do."""
        names = tuple(names)
        if names:
            await self._save(self.journal.release(names))
            await self.forget()

    async def forget(self) -> None:
        """Remove the directories of what is released; what cannot be removed is tried later."""
        for name in [n for n, a in self.journal.grants.items() if a.released]:
            if self.journal.grants[name].legacy:
                self.journal = self.journal.drop([name])
                continue
            if await self.close(name):
                self.journal = self.journal.drop([name])

    async def close(self, name: AllocationID) -> bool:
        """Remove its directory, and say whether it is gone."""
        try:
            await self._isolation.release(name)
        except (GpuManagerError, OSError) as error:
            logger.warning("allocation %s is not removed yet: %s", name, error)
            return False
        return True

    async def _save(self, journal: Journal) -> None:
        await self._on_disk(self._file.save, journal)
        self.journal = journal

    async def _on_disk(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Begun at once; it goes on although whoever waits for it gives up."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._writer, work, *arguments))
