"""What Allocate promises: decided, written down, answered; or refused, which is final.

A refusal costs a pod its life, so room is looked for before one is given: with those who look
ended, and in another reading of who asks.
"""

from collections.abc import Collection
from pathlib import Path

from gpumanager.deviceplugin.admission.admission import Transaction
from gpumanager.deviceplugin.admission.decision import Demand, Refused, decide
from gpumanager.deviceplugin.admission.hearing import Hearing
from gpumanager.deviceplugin.admission.room import given_to_nobody
from gpumanager.deviceplugin.advertised import accepted
from gpumanager.deviceplugin.device_ids import UnknownDeviceID
from gpumanager.deviceplugin.identity.lifecycle import Conflict, conflict
from gpumanager.deviceplugin.surroundings import Surroundings
from gpumanager.errors import GpuManagerError
from gpumanager.grants.journal import Allocation, State
from gpumanager.grants.journal_file import JournalUnwritable
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.promises import Promises
from gpumanager.isolation.answer import Answer, answer
from gpumanager.names import VCORE


class Granting:
    """For one caller at a time: whoever calls holds the allocator's lock."""

    def __init__(
        self, ledger: Ledger, promises: Promises, hearing: Hearing, around: Surroundings
    ) -> None:
        self._ledger = ledger
        self._promises = promises
        self._hearing = hearing
        self._around = around

    async def allocate(self, resource: str, ids: Collection[str]) -> Answer | Refused:
        """What the container gets; raises as `Allocator.allocate` does."""
        open_ = await self._hearing.allocating(resource, ids)
        open_, decided = await self._sought(open_, resource, ids)
        if isinstance(decided, Refused):
            await self._abandon(open_)
            return decided
        directory = await self._promise(decided, open_)
        return self._answer(decided, open_, resource, directory)

    def conflict(self, open_: Transaction, ids: Collection[str]) -> Conflict:
        """Who else was promised any of `ids`."""
        promises, view = self._promises, self._hearing.view
        return conflict(promises.live(), open_.admission, ids, view, promises.lingering)

    async def _sought(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> tuple[Transaction, Allocation | Refused]:
        """Decided once; then with more room; then as the beginning of somebody else's."""
        decided = await self._decide(open_, resource, ids)
        if isinstance(decided, Refused) and await self._make_room(open_):
            decided = await self._decide(open_, resource, ids)
        other = self._hearing.apart(open_, resource, len(ids))
        if isinstance(decided, Refused) and other:
            open_ = self._hearing.keep(other)
            decided = await self._decide(open_, resource, ids)
        return open_, decided

    async def _decide(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> Allocation | Refused:
        if not ids:
            return Refused(f"no devices are asked for of {resource}")
        demand = self._demand(resource, ids)
        if isinstance(demand, Refused):
            return demand
        found = self.conflict(open_, ids)
        await self._promises.release(found.over)
        if found.refused:
            return found.refused
        self._promises.doubt(found.doubted)
        return self._decided(open_, demand)

    def _demand(self, resource: str, ids: Collection[str]) -> Demand | Refused:
        try:
            return Demand(resource, accepted(self._ledger.ids, ids), self._around.clock())
        except UnknownDeviceID as error:
            return Refused(str(error))

    def _decided(self, open_: Transaction, demand: Demand) -> Allocation | Refused:
        live, share_mode = self._promises.live(), self._around.share_mode
        return decide(self._ledger, live, open_, demand, share_mode=share_mode)

    async def _make_room(self, open_: Transaction) -> bool:
        """Whether there is more room now."""
        live, view = self._promises.live(), self._hearing.view
        names = await given_to_nobody(live, open_, view, self._around)
        await self._promises.release(names)
        return bool(names)

    async def _promise(self, decided: Allocation, open_: Transaction) -> Path | None:
        try:
            return await self._promises.promise(decided, _blocks(decided, open_))
        except JournalUnwritable:
            raise
        except (GpuManagerError, OSError):
            await self._promises.release([decided.allocation])
            await self._abandon(open_)
            raise

    async def _abandon(self, open_: Transaction) -> None:
        """The pod is refused for good: what else it was promised is free.

        Not where only the order of calls says that it was promised to the same pod.
        """
        if not open_.candidates:
            return
        await self._promises.release(
            a.allocation
            for a in self._promises.live()
            if a.admission == open_.admission and a.state is State.ANSWERED
        )
        self._hearing.close()

    def _answer(
        self, allocation: Allocation, open_: Transaction, resource: str, directory: Path | None
    ) -> Answer:
        if resource != VCORE:
            return Answer()
        return answer(
            allocation,
            tuple(gpu for gpu in self._ledger.topology.gpus if gpu.uuid in allocation.gpus),
            volumes=self._around.volumes,
            files=self._around.files,
            directory=directory,
            memory_blocks=_blocks(allocation, open_) or (0 if open_.request else None),
        )


def _blocks(allocation: Allocation, open_: Transaction) -> int:
    """Memory blocks it has or will have, as far as known."""
    return allocation.blocks or (open_.request.blocks if open_.request else 0)
