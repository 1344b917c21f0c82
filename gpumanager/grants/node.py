"""The node: the one owner of this machine's GPUs, and of every grant of them.

Two interfaces grant GPUs, device plugins and claims. Both take the node. What a GPU is closed for,
and to which of them, is decided here and nowhere else:

    unhealthy    out of use, by the health checks. Device plugins grant nothing there; a claim may
                 tolerate it, so that claims only taint it
    cordoned     an operator wants nothing new there; claims taint it, and for device plugins the
                 extender obeys it
    withdrawn    another manager has it
    offers       which interface grants it, and whether it leaves that one (`grants.offers`)
    foreign      offered by the other interface, or held by a grant of the other one

A decision takes the `Ledger` of its interface, which is a value: it changes only when a new one is
asked for. `lock` is to be held from a decision to the end of its effect.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from gpumanager.gpu.inventory import cordoned_gpus
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.device_ids import DeviceIDs
from gpumanager.grants.grant import ClaimSource, DevicePluginSource, Grant, Source
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger, Sums
from gpumanager.grants.offers import GpuOffer, Offers
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID
from gpumanager.names import CLAIMS, DEVICE_PLUGINS
from gpumanager.placement.values import FreeGpus

SOURCES: Final[Mapping[str, type[Source]]] = {
    DEVICE_PLUGINS: DevicePluginSource,
    CLAIMS: ClaimSource,
}
"""The interfaces, and where the grants of each come from."""
GpuSet = frozenset[GpuUUID]


class Node:
    """One machine's GPUs. Raises IndistinctGPUs.

    interface: offers a GPU of which nothing else is known.
    """

    def __init__(
        self, topology: Topology, store: GrantStore, interface: str = DEVICE_PLUGINS
    ) -> None:
        self.topology, self._ids = topology, DeviceIDs(topology)
        self._sums = Sums()
        self._told: tuple[GpuSet, GpuSet] = frozenset(), frozenset()
        """The GPUs that claims may not grant, as the subscribers know them."""
        self._subscribers: list[Callable[[], None]] = []
        self._grants: dict[str, tuple[Journal, tuple[Grant, ...]]] = {}
        self.interface = interface
        self.store = store
        self.unhealthy: GpuSet = frozenset()
        """GPUs that are out of use."""
        self._cordon = ""
        self.cordon_known = False
        """Whether it was said which GPUs are cordoned."""
        self.withdrawn: GpuSet = frozenset()
        """GPUs that another manager has."""
        self.offers: Offers = {}
        """Empty until the journal is loaded, where both interfaces are served."""
        self.taken_up = asyncio.Event()
        """Set once the journal is loaded."""

    @property
    def journal(self) -> Journal:
        """The grants of both interfaces."""
        return self.store.journal

    @property
    def lock(self) -> asyncio.Lock:
        return self.store.lock

    @property
    def recovered(self) -> bool:
        """Whether the journal is loaded."""
        return self.taken_up.is_set()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call this whenever an interface may grant more, or less, than before."""
        self._subscribers.append(changed)

    def notify(self) -> None:
        """Call all subscribers."""
        for changed in self._subscribers:
            changed()

    def grants(self, interface: str) -> tuple[Grant, ...]:
        """Return the grants of an interface that hold something, oldest first."""
        journal, found = self._grants.get(interface, (None, ()))
        if journal is not self.journal:  # asked several times in each call of a kubelet
            kind = SOURCES[interface]
            found = tuple(one for one in self.journal.live() if isinstance(one.source, kind))
            self._grants[interface] = self.journal, found
        return found

    @property
    def leaving(self) -> GpuSet:
        """GPUs that get nothing new; a call that has their IDs, or a claim that was allocated them,
        is served."""
        return frozenset(gpu for gpu, one in self.offers.items() if one.leaving)

    @property
    def closing(self) -> GpuSet:
        """Those of the leaving GPUs of which schedulers may not have learnt it yet."""
        return frozenset(g for g, one in self.offers.items() if one.leaving and not one.withdrawn)

    def foreign(self, interface: str) -> GpuSet:
        """Return the GPUs that another interface offers, or of which it still has a grant."""
        offered = {gpu for gpu, one in self.offers.items() if one.interface != interface}
        return frozenset(offered.union(*(one.gpus for one in self._others(interface))))

    def closed(self, interface: str) -> Mapping[GpuUUID, str]:
        """Return the GPUs of which an interface grants nothing, and why not."""
        unfit = self.unhealthy if interface == DEVICE_PLUGINS else ()
        foreign = self.foreign(interface)
        holders = {
            gpu: f"{_holder(one)} holds it" for one in self._others(interface) for gpu in one.gpus
        }
        return {
            **dict.fromkeys(unfit, "it is unhealthy"),
            **{
                gpu: f"it is offered by the interface {self.offers[gpu].interface}"
                for gpu in foreign
                if gpu in self.offers
            },
            **holders,
            **dict.fromkeys(self.withdrawn, "another manager has it"),
        }

    def _others(self, interface: str) -> Iterator[Grant]:
        """Yield the grants that keep their GPUs from an interface: not those of claims that only
        look; but what device plugins granted may still run, though the kubelet has given its
        devices to another pod since."""
        others = (one for other in SOURCES if other != interface for one in self.grants(other))
        return (one for one in others if one.counts or interface == CLAIMS)

    def ledger(self, interface: str) -> Ledger:
        """Return the sums of an interface. Unhealthy GPUs are closed in that of device plugins
        alone, and cordoned ones in none."""
        return Ledger(
            self.topology,
            self._ids,
            closed=self.closed(interface),
            leaving=self.leaving,
            foreign=self.foreign(interface),
            sums=self._sums,
        )

    def free(self, interface: str) -> FreeGpus:
        """Return what an interface may still grant."""
        return self.ledger(interface).books(self.grants(interface))

    def held(self) -> GpuSet:
        """Return the GPUs that a grant of device plugins has, and those whose device IDs a pod
        holds for another GPU."""
        live = self.grants(DEVICE_PLUGINS)
        ids = (i for one in live for i in one.ids.all)
        named = {self._ids.gpu_of(i).uuid for i in ids if i in self._ids}
        return frozenset(named.union(*(one.gpus for one in live)))

    def mark_unhealthy(self, gpus: Iterable[GpuUUID]) -> None:
        """From now on just these GPUs are out of use."""
        self.unhealthy = frozenset(gpus)
        self.notify()

    @property
    def cordoned(self) -> GpuSet:
        """GPUs on which an operator wants no new containers."""
        return cordoned_gpus(self.topology, self._cordon)

    def cordon(self, text: str) -> None:
        """From now on the GPUs that this text names get no new containers: UUIDs, or `*`."""
        self._cordon, self.cordon_known = text, True
        self.notify()

    def withdraw(self, gpus: GpuSet) -> None:
        """From now on another manager has these GPUs. While there are any, device plugins advertise
        only what pods hold."""
        self.withdrawn = gpus
        self.notify()

    def offer(self, offers: Offers) -> None:
        """From now on each GPU is offered like this.

        To be called now and then without a change, too: a grant of the other interface may have
        ended, on a GPU of ours. Example: one that a stale checkpoint brought back at the start.
        """
        self.offers = offers
        ledger = self.ledger(CLAIMS)
        if (told := (frozenset(ledger.closed), ledger.leaving)) != self._told:
            self._told = told
            self.notify()

    async def adopt(self, topology: Topology) -> None:
        """Use these GPUs from now on. Raises IndistinctGPUs, and then nothing has changed."""
        async with self.lock:
            self._ids, self._sums = DeviceIDs(topology), Sums()
            self.topology = topology
            if self.offers:
                known = {gpu.uuid: GpuOffer(self.interface) for gpu in topology.gpus}
                self.offers = {**known, **self.offers}
        self.notify()

    async def grant(self, *grants: Grant) -> None:
        """Write these to disk. Raises JournalUnwritable, and then nothing has changed."""
        await self.store.put(*grants)

    async def release(self, names: Iterable[AllocationID]) -> None:
        """Release these. Raises JournalUnwritable, and then nothing has changed."""
        await self.store.release(names)


def _holder(grant: Grant) -> str:
    """Return who has it, for people; never by the device IDs, which are hundreds."""
    claim = grant.source if isinstance(grant.source, ClaimSource) else "an unknown pod"
    return str(grant.pod or grant.candidate or claim)
