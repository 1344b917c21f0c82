"""Which pod is being admitted, observed call by call.

`transaction` decides what a call means, as a pure function. The tracker gathers what that needs:
the kubelet's list of pods, the time, a new allocation ID, and the grants in the journal.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from gpumanager.deviceplugin.admission import transaction
from gpumanager.deviceplugin.admission.steering import could_hold
from gpumanager.deviceplugin.admission.transaction import (
    PAIR_AGE,
    Admission,
    PluginCall,
    Transaction,
    View,
)
from gpumanager.deviceplugin.device_ledger import ids_of, of_admission
from gpumanager.deviceplugin.identity.evidence import PodLister
from gpumanager.deviceplugin.identity.verdict import GrantFacts, Occasion, ended_grants
from gpumanager.grants.grant import Grant
from gpumanager.grants.node import Node
from gpumanager.ids import AllocationID
from gpumanager.kube.pod import PodView
from gpumanager.names import DEVICE_PLUGINS

PAIR_LIST_AGE: Final = 0.25
"""Seconds that the list of pods may be old for the second resource of a container."""


class AdmissionTracker:
    """Not for concurrent use: the allocator's lock guards it."""

    def __init__(self, node: Node, lister: PodLister, clock: Callable[[], float]) -> None:
        self._node = node
        self._lister = lister
        self._clock = clock
        self._known = Admission()
        self.view: View | None = None
        """The pods that the last call found listed; None where they could not be read."""

    @property
    def open(self) -> Transaction | None:
        """The container being admitted, or the last one that was."""
        return self._known.open

    @property
    def admitted_now(self) -> Transaction | None:
        """The transaction of the pod that may be under admission still."""
        recent = self.open is not None and self._clock() - self.open.began < PAIR_AGE
        return self.open if recent else None

    async def begin_anew(self) -> None:
        """A kubelet has started: nothing is under admission, and pods listed now are not new."""
        view = await self._lister.list()
        self._known = Admission(frozenset(pod.uid for pod in view or ()), None)

    async def observe(self, resource: str, size: int, *, again: bool = False) -> Transaction:
        """Return the transaction of this call; a pod that it shows to be rejected loses its
        grants."""
        before = self.open
        one = before.candidate if before and before.viewed and not before.awaiting else None
        # It can be the other resource of the container that was just asked about, for which the
        # list need not be new. Only where its whole pod still fits: else the kubelet may have
        # refused the pod in between, and this be the first call for the next one. Example: 30 cores
        # are given out, of the memory there is too little, and the next pod wants as much memory.
        half = one is not None and one.same(resource, size) is not None and self._fits(one.pod)
        self.view = await self._lister.list(PAIR_LIST_AGE if half else 0.0)
        live = self._node.grants(DEVICE_PLUGINS)
        holders = {owner for a in live if (owner := a.owner)}
        call = self._call(resource, size, again=again)
        self._known = transaction.observe(self._known, call, self.view, holders, self._fits)
        if before is not None:
            facts = GrantFacts(admission=self.open, previous=before)
            admitted = of_admission(live, before.admission)
            await self._node.release(ended_grants(admitted, Occasion.NEXT_POD, facts))
        if self.open is None:  # pragma: no cover  # every call leaves one open
            raise AssertionError("no admission is open")
        return self.open

    async def allocating(self, resource: str, ids: Collection[str]) -> Transaction:
        """Return the transaction that expects this Allocate; without a preceding preference, a new
        one."""
        open_ = self.open
        if open_ is None or open_.awaiting != resource or open_.sizes.get(resource) != len(ids):
            half = self._node.journal.get(open_.allocation) if open_ else None
            again = half is not None and set(ids_of(half, resource)) == set(ids)
            open_ = await self.observe(resource, len(ids), again=again)
        return self.keep(replace(open_, awaiting=None))

    def apart(self, open_: Transaction, resource: str, size: int) -> Transaction | None:
        """Return the call as the beginning of something new, where it can be that; not kept yet."""
        return transaction.apart(open_, self._call(resource, size))

    def keep(self, open_: Transaction) -> Transaction:
        """More is known of the one that is open."""
        self._known = replace(self._known, open=open_)
        return open_

    def close(self) -> None:
        """Its pod is refused for good."""
        self._known = replace(self._known, open=None)

    def under(self, allocation: Grant) -> bool:
        """Return True if its pod may be under admission still."""
        now = self.admitted_now
        return now is not None and allocation.ids.admission == now.admission

    def _call(self, resource: str, size: int, *, again: bool = False) -> PluginCall:
        nonce = AllocationID(secrets.token_hex(8))
        return PluginCall(resource, size, self._clock(), nonce, again=again)

    def _fits(self, pod: PodView) -> bool:
        ledger = self._node.ledger(DEVICE_PLUGINS)
        return could_hold(ledger, self._node.free(DEVICE_PLUGINS), pod)
