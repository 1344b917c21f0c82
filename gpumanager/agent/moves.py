"""GPUs go from one interface to the other: `grants.offers` decides, this carries it out.

While a GPU leaves, its containers run on and are served by the interface that it leaves.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol

from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.node import Node
from gpumanager.grants.offers import (
    GpuUses,
    OfferFile,
    Offers,
    first_offers,
    moved,
    offered_by,
    wanted,
)
from gpumanager.names import CLAIMS, DEVICE_PLUGINS

log = logging.getLogger(__name__)

MOVE_SECONDS: Final = 0.5
"""Between two looks at GPUs that should go over."""
ALL_GPUS: Final = 1 << 10
"""More GPUs than a node has."""


class ClaimUses(Protocol):
    """What claims have, beyond the grants: `agent.interfaces`."""

    def in_use(self) -> frozenset[GpuUUID]:
        """GPUs that pods have by claims, or may be about to get."""

    def allocated(self) -> frozenset[GpuUUID]:
        """GPUs that the scheduler has given to claims."""


class GpuMoves:
    """claims_gpus: how many GPUs claims should have; None: not known yet. quiet: seconds, see
    `moved`. refresh: tells the kubelet and the API server what is offered now. clock: monotonic
    seconds."""

    def __init__(
        self,
        node: Node,
        devices: Allocator,
        claims: ClaimUses,
        *,
        file: OfferFile,
        claims_gpus: Callable[[], int | None],
        quiet: float,
        refresh: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._devices, self._claims = node, devices, claims
        self._file, self._claims_gpus, self._quiet = file, claims_gpus, quiet
        self._refresh, self._clock = refresh, clock
        self._complaint = ""

    async def begin(self) -> None:
        """Offer each GPU by the interface that its containers have, once the journal is loaded."""
        granted = [one for one in self._node.grants(CLAIMS) if one.counts]
        claimed = frozenset(gpu for one in granted for gpu in one.gpus)
        uses = replace(self._uses(), claims=claimed)
        gpus = [gpu.uuid for gpu in self._node.topology.gpus]
        offers = first_offers(gpus, self._file.read(), uses, self._node.interface)
        await self._move(offers, uses)

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
        """Move each GPU by one step. Raises OffersUnwritable, JournalUnwritable."""
        offers, leaving = self._node.offers, self._node.leaving
        if leaving & offered_by(offers, DEVICE_PLUGINS):
            await self._devices.release_ended()
        target = wanted(offers, self._uses(), self._claims_gpus())
        going = {g for g, one in offers.items() if target[g] != one.interface} - leaving
        arriving = bool(going) and await self._devices.arriving()
        before = {gpu: replace(one, since=None) for gpu, one in offers.items()}
        async with self._node.lock:  # nothing is granted between the decision and its effect
            await self._move(self._node.offers, replace(self._uses(), arriving=arriving))
        if {gpu: replace(one, since=None) for gpu, one in self._node.offers.items()} != before:
            await self._refresh()

    async def _move(self, offers: Offers, uses: GpuUses) -> None:
        target = wanted(offers, uses, self._claims_gpus())
        found = moved(offers, target, uses, self._clock(), self._quiet)
        claimed = offered_by(found, CLAIMS)
        if claimed != self._file.read():
            await asyncio.to_thread(self._file.write, claimed)
        for gpu in claimed ^ offered_by(offers, CLAIMS):
            log.info("%s is now offered by %s", gpu, found[gpu].interface)
        self._node.offer(found)

    def _uses(self) -> GpuUses:
        cores: dict[GpuUUID, int] = {}
        for one in self._node.journal.live():
            for gpu, share in one.shares.items():
                cores[gpu] = cores.get(gpu, 0) + share.cores
        return GpuUses(self._node.held(), self._claims.in_use(), cores, self._claims.allocated())
