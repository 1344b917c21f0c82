"""Device plugins and claims in one agent: each GPU is offered by one of them, and may go over.

Both are put together as they are alone, over one journal and one lock. `grants.offers` decides.
While a GPU leaves, its containers run on and are served by the interface that it leaves.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumanager.agent.interface import KubeletPlugin, NodeInterface, PluginStanding
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import ClaimSource
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.offers import (
    CLAIMS,
    DEVICE_PLUGINS,
    GpuOffer,
    GpuUses,
    OfferFile,
    Offers,
    first_offers,
    moved,
    offered_by,
    wanted,
)
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID, PodUID

log = logging.getLogger(__name__)

MOVE_SECONDS: Final = 0.5
"""Between two looks at GPUs that should go over."""
ALL: Final = 1 << 10
"""More GPUs than a node has."""


@dataclass(frozen=True, slots=True)
class MovePolicy:
    """interface: what GPUs belong to of which nothing else is known. claims_gpus: how many GPUs
    claims should have; None: not known yet. quiet: seconds, see `moved`."""

    interface: str
    claims_gpus: Callable[[], int | None]
    quiet: float


class BothInterfaces:
    """What the agent's other parts see of two interfaces: one `Granter`, one `KubeletPlugin`.

    store: of the device plugins' grants. clock: monotonic seconds.
    """

    def __init__(
        self,
        devices: NodeInterface,
        claims: NodeInterface,
        store: GrantStore,
        *,
        file: OfferFile,
        policy: MovePolicy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._devices, self._claims = devices, claims
        self._store, self._file, self._policy, self._clock = store, file, policy, clock
        self._plugins: tuple[KubeletPlugin, ...] = (claims.plugin, devices.plugin)
        self._complaint = ""
        self._started: list[KubeletPlugin] = []
        self.recovered = False
        self.offers: Offers = {}
        """Which interface has which GPU now."""

    @property
    def journal(self) -> Journal:
        return self._store.journal

    @property
    def ledger(self) -> Ledger:
        return self._devices.granter.ledger

    @property
    def topology(self) -> Topology:
        return self._devices.granter.topology

    @property
    def unhealthy(self) -> frozenset[GpuUUID]:
        return self._devices.granter.unhealthy

    @property
    def standings(self) -> Sequence[PluginStanding]:
        """Without those of claims where this node has none any more, and is to have none."""
        device_plugins = self._policy.interface == DEVICE_PLUGINS
        done = device_plugins and not offered_by(self.offers, CLAIMS) and not self._uses().claims
        plugins = (self._devices.plugin,) if self.recovered and done else self._plugins
        return [one for plugin in plugins for one in plugin.standings]

    def owners(self, allocation: AllocationID) -> Collection[PodUID]:
        grant = self.journal.get(allocation)
        claimed = grant is not None and isinstance(grant.source, ClaimSource)
        return (self._claims if claimed else self._devices).owners(allocation)

    def mark_unhealthy(self, gpus: Iterable[GpuUUID]) -> None:
        gpus = frozenset(gpus)
        self._devices.granter.mark_unhealthy(gpus)
        self._claims.granter.mark_unhealthy(gpus)

    def withdraw(self, gpus: frozenset[GpuUUID]) -> None:
        self._devices.granter.withdraw(gpus)
        self._claims.granter.withdraw(gpus)

    async def adopt(self, topology: Topology) -> None:
        await self._devices.granter.adopt(topology)
        await self._claims.granter.adopt(topology)
        self._offer({**self._unknown(), **self.offers})

    async def take_up(self) -> None:
        """Device plugins first: they find what the journal has lost among running containers."""
        await self._devices.granter.take_up()
        await self._claims.granter.take_up()
        granted = [one for one in self.journal.live() if one.counts]
        claimed = {g for one in granted if isinstance(one.source, ClaimSource) for g in one.gpus}
        uses = replace(self._uses(), claims=frozenset(claimed))
        gpus = [gpu.uuid for gpu in self.topology.gpus]
        self.offers = first_offers(gpus, self._file.read(), uses, self._policy.interface)
        await self._move(uses)
        if self._policy.interface == CLAIMS and not offered_by(self.offers, DEVICE_PLUGINS):
            self._plugins = (self._claims.plugin,)
        self.recovered = True
        if self._started:
            await self.start()

    async def serve_again(self) -> None:
        await self._claims.granter.serve_again()  # the grants of both

    async def start(self) -> None:
        """Before `take_up` claims alone, whose calls wait for it: the journal may be another
        agent's, which is about to hand over, and whose device plugins still answer."""
        now = self._plugins if self.recovered else (self._claims.plugin,)
        for plugin in now:
            if plugin not in self._started:
                self._started.append(plugin)
                await plugin.start()

    async def served(self, within: float) -> None:
        await asyncio.gather(*(plugin.served(within) for plugin in self._started))

    async def registered(self, within: float) -> None:
        await asyncio.gather(*(plugin.registered(within) for plugin in self._started))

    def register_anew(self) -> None:
        for plugin in self._plugins:
            plugin.register_anew()

    async def refresh(self) -> None:
        for plugin in self._plugins:
            await plugin.refresh()

    async def stop(self) -> None:
        for plugin in self._plugins:
            await plugin.stop()

    async def move_for_ever(self) -> None:
        """Bring GPUs to where they should be, for as long as the task lives."""
        while True:
            try:
                await self.move()
                self._complaint = ""
            except (GpuManagerError, OSError) as error:
                if str(error) != self._complaint:
                    log.error("GPUs cannot move between device plugins and claims: %s", error)  # noqa: TRY400
                self._complaint = str(error)
            await asyncio.sleep(MOVE_SECONDS)

    async def move(self) -> None:
        """One step of each GPU. Raises OffersUnwritable, JournalUnwritable."""
        leaving = {gpu for gpu, one in self.offers.items() if one.leaving}
        if leaving & offered_by(self.offers, DEVICE_PLUGINS):
            await self._devices.release_ended()
        target = wanted(self.offers, self._uses(), self._policy.claims_gpus())
        going = {g for g, one in self.offers.items() if target[g] != one.interface} - leaving
        arriving = bool(going) and await self._devices.arriving()
        before = _without_times(self.offers)
        async with self._store.lock:  # nothing is granted between the decision and its effect
            await self._move(replace(self._uses(), arriving=arriving))
        if _without_times(self.offers) != before:
            await self.refresh()

    async def _move(self, uses: GpuUses) -> None:
        target = wanted(self.offers, uses, self._policy.claims_gpus())
        found = moved(self.offers, target, uses, self._clock(), self._policy.quiet)
        claimed = offered_by(found, CLAIMS)
        if claimed != self._file.read():
            await asyncio.to_thread(self._file.write, claimed)
        for gpu in claimed ^ offered_by(self.offers, CLAIMS):
            log.info("%s is now offered by %s", gpu, found[gpu].interface)
        self._offer(found)

    def _offer(self, offers: Offers) -> None:
        self.offers = offers
        leaving = frozenset(gpu for gpu, one in offers.items() if one.leaving)
        closing = frozenset(gpu for gpu in leaving if not offers[gpu].withdrawn)
        self._devices.offer(offered_by(offers, CLAIMS), leaving, closing)
        self._claims.offer(offered_by(offers, DEVICE_PLUGINS), leaving, closing)

    def _uses(self) -> GpuUses:
        cores: dict[GpuUUID, int] = {}
        for one in self.journal.live():
            for gpu, share in one.shares.items():
                cores[gpu] = cores.get(gpu, 0) + share.cores
        return GpuUses(
            self._devices.in_use(), self._claims.in_use(), cores, self._claims.allocated()
        )

    def _unknown(self) -> Offers:
        """For GPUs that have just come."""
        return {gpu.uuid: GpuOffer(self._policy.interface) for gpu in self.topology.gpus}


def _without_times(offers: Offers) -> Mapping[GpuUUID, GpuOffer]:
    return {gpu: replace(one, since=None) for gpu, one in offers.items()}
