"""Who is asking: one admission, heard call by call.

What a call tells is decided in `admission`, which knows nothing of the world. What it decides on is
gathered here: a look at the kubelet's list of pods, the time, a fresh name, and the journal, which
says who holds something already.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import replace

from gpumanager.deviceplugin.admission import admission
from gpumanager.deviceplugin.admission.admission import PAIR_AGE, Admission, Call, Transaction, View
from gpumanager.deviceplugin.admission.steering import could_hold
from gpumanager.deviceplugin.identity.lifecycle import rejected
from gpumanager.grants.journal import Allocation
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.promises import Promises
from gpumanager.kubelet.pods import PodView
from gpumanager.recovery.evidence import Eyes
from gpumanager.virtual.values import AllocationID


class Hearing:
    """For one caller at a time: whoever calls holds the allocator's lock."""

    def __init__(
        self, ledger: Ledger, promises: Promises, eyes: Eyes, clock: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._promises = promises
        self._eyes = eyes
        self._clock = clock
        self._known = Admission()
        self._view: View | None = None

    @property
    def open(self) -> Transaction | None:
        """The container being admitted, or the last one that was."""
        return self._known.open

    @property
    def view(self) -> View | None:
        """The pods that the last call found listed; None where they could not be read."""
        return self._view

    @property
    def admitting(self) -> bool:
        """True if a pod may be under admission still."""
        return self.open is not None and self._clock() - self.open.began < PAIR_AGE

    async def begin_anew(self) -> None:
        """A kubelet has started: nothing is under admission, and pods listed now are not new."""
        view = await self._eyes.look()
        self._known = Admission(frozenset(pod.uid for pod in view or ()), None)

    async def hear(self, resource: str, size: int, *, again: bool = False) -> Transaction:
        """Whose call this is; what was promised to a pod that this shows rejected is released."""
        self._view = await self._eyes.look()
        before, live = self.open, self._promises.live()
        holders = {a.owner for a in live if a.owner}
        call = self._call(resource, size, again=again)
        self._known = admission.hear(self._known, call, self._view, holders, self._fits)
        await self._promises.release(rejected(live, before, self.open))
        return self.being_admitted()

    async def allocating(self, resource: str, ids: Collection[str]) -> Transaction:
        """The one whose Allocate has to come; or, where no IDs were preferred, what is heard."""
        open_ = self.open
        if open_ is None or open_.awaiting != resource or open_.sizes.get(resource) != len(ids):
            half = self._promises.journal.get(open_.allocation) if open_ else None
            again = half is not None and set(half.ids(resource)) == set(ids)
            open_ = await self.hear(resource, len(ids), again=again)
        return self.keep(replace(open_, awaiting=None))

    def apart(self, open_: Transaction, resource: str, size: int) -> Transaction | None:
        """The call as the beginning of something new, where it can be that; not kept yet."""
        return admission.apart(open_, self._call(resource, size))

    def being_admitted(self) -> Transaction:
        """What a call has left open."""
        if self.open is None:  # pragma: no cover  # every call leaves one open
            raise AssertionError("no admission is open")
        return self.open

    def keep(self, open_: Transaction) -> Transaction:
        """More is known of the one that is open."""
        self._known = replace(self._known, open=open_)
        return open_

    def close(self) -> None:
        """Its pod is refused for good."""
        self._known = replace(self._known, open=None)

    def under(self, allocation: Allocation) -> bool:
        """True if its pod may be under admission still."""
        return self.admitting and allocation.admission == self.being_admitted().admission

    def _call(self, resource: str, size: int, *, again: bool = False) -> Call:
        nonce = AllocationID(secrets.token_hex(8))
        return Call(resource, size, self._clock(), nonce, again=again)

    def _fits(self, pod: PodView) -> bool:
        return could_hold(self._ledger, self._ledger.books(self._promises.live()), pod)
