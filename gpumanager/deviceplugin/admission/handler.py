"""What Allocate promises: decided, written down, answered; or refused, which is final.

A refusal costs a pod its life, so room is looked for before one is given: with those who look
ended, and in another reading of who asks.
"""

from collections.abc import Collection
from dataclasses import replace

from gpumanager.deviceplugin.admission.decision import AllocateCall, decide
from gpumanager.deviceplugin.admission.reclaim import reclaimable
from gpumanager.deviceplugin.admission.tracker import AdmissionTracker
from gpumanager.deviceplugin.admission.transaction import Transaction
from gpumanager.deviceplugin.advertised import accepted
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ids import UnknownDeviceID
from gpumanager.deviceplugin.device_ledger import DeviceLedger
from gpumanager.deviceplugin.identity.lifecycle import Conflict, conflict
from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import Grant, Refused, State
from gpumanager.grants.store import GrantStore
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.names import ANNOTATION_DEVICE, VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK


class AllocateHandler:
    """For one caller at a time: whoever calls holds the allocator's lock."""

    def __init__(
        self, ledger: DeviceLedger, store: GrantStore, tracker: AdmissionTracker, deps: Dependencies
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._tracker = tracker
        self._deps = deps

    async def allocate(self, resource: str, ids: Collection[str]) -> ContainerEdits | Refused:
        """What the container gets; raises as `Allocator.allocate` does."""
        open_ = await self._tracker.allocating(resource, ids)
        open_, decided = await self.decide_with_retry(open_, resource, ids)
        if isinstance(decided, Refused):
            await self._abandon(open_)
            return decided
        edits = await self._promise(decided, open_)
        return edits if resource == VCORE else ContainerEdits()

    def conflict(self, open_: Transaction, ids: Collection[str]) -> Conflict:
        """Who else was promised any of `ids`."""
        store, view = self._store, self._tracker.view
        return conflict(store.live(), open_.admission, ids, view, store.lingering)

    async def decide_with_retry(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> tuple[Transaction, Grant | Refused]:
        """Decided once; then with more room; then as the beginning of somebody else's."""
        decided = await self._decide(open_, resource, ids)
        if isinstance(decided, Refused) and await self._make_room(open_):
            decided = await self._decide(open_, resource, ids)
        other = self._tracker.apart(open_, resource, len(ids))
        if isinstance(decided, Refused) and other:
            open_ = self._tracker.keep(other)
            decided = await self._decide(open_, resource, ids)
        return open_, decided

    async def _decide(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> Grant | Refused:
        if not ids:
            return Refused(f"no devices are asked for of {resource}")
        demand = self._demand(resource, ids)
        if isinstance(demand, Refused):
            return demand
        found = self.conflict(open_, ids)
        await self._store.release(found.over)
        if found.refused:
            return found.refused
        self._store.doubt(found.doubted)
        return self._decided(open_, demand)

    def _demand(self, resource: str, ids: Collection[str]) -> AllocateCall | Refused:
        try:
            return AllocateCall(resource, accepted(self._ledger.ids, ids), self._deps.clock())
        except UnknownDeviceID as error:
            return Refused(str(error))

    def _decided(self, open_: Transaction, demand: AllocateCall) -> Grant | Refused:
        live, deps = self._store.live(), self._deps
        share_mode, policy = deps.share_mode, deps.gpu_policy
        return decide(self._ledger, live, open_, demand, share_mode=share_mode, gpu_policy=policy)

    async def _make_room(self, open_: Transaction) -> bool:
        """Whether there is more room now."""
        live, view = self._store.live(), self._tracker.view
        names = await reclaimable(live, open_, view, self._deps)
        await self._store.release(names)
        return bool(names)

    async def _promise(self, decided: Grant, open_: Transaction) -> ContainerEdits:
        """On the disk first, and then held, with the memory that it will ask for, if that is known.

        Raises JournalUnwritable, and then nothing has changed; and what its back end raises.
        """
        await self._store.put(decided)
        if not decided.isolation:  # memory came first: nothing is mounted for that
            return ContainerEdits()
        memory = decided.blocks or (open_.request.blocks if open_.request else 0)
        shares = {uuid: replace(one, blocks=memory) for uuid, one in decided.shares.items()}
        gpus = tuple(gpu for gpu in self._ledger.topology.gpus if gpu.uuid in shares)
        annotations = {
            VCORE: str(decided.cores),
            ANNOTATION_DEVICE: ",".join(f"/dev/nvidia{gpu.minor}" for gpu in gpus),
        }
        if memory or open_.request:
            annotations[VMEMORY] = str(memory * MEMORY_BLOCK)
        try:
            edits = await self._deps.isolation.prepare(replace(decided, shares=shares), gpus)
        except (GpuManagerError, OSError):
            await self._store.release([decided.id])
            await self._abandon(open_)
            raise
        return edits + ContainerEdits(annotations=annotations)

    async def _abandon(self, open_: Transaction) -> None:
        """The pod is refused for good: what else it was promised is free.

        Not where only the order of calls says that it was promised to the same pod.
        """
        if not open_.candidates:
            return
        await self._store.release(
            a.id
            for a in self._store.live()
            if a.ids.admission == open_.admission and a.state is State.ANSWERED
        )
        self._tracker.close()
