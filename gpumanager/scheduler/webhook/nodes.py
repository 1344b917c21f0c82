"""Which kinds of nodes exist, and whether any could run a pod if it were empty.

The kinds are polled from the inventories that agents publish. If the API server does not respond,
the last known kinds stay. While none is known, no pod is rejected for its size. Only certain errors
are reported: each container alone, and the sum of all that run at the same time. A pod that passes
may still not fit anywhere.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.gpu.inventory import read_inventory
from gpumanager.gpu.values import Topology
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import ANNOTATION_INVENTORY
from gpumanager.placement.values import Request
from gpumanager.scheduler.webhook.asks import ContainerAmounts
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, blocks, count_of, format_bytes

log = logging.getLogger(__name__)

NODES: Final = "/api/v1/nodes"
PERIOD: Final = 60.0


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike. blocks: memory of each GPU, the largest first, in blocks."""

    blocks: tuple[int, ...]

    @classmethod
    def of(cls, node: Topology) -> "NodeKind":
        return cls(tuple(sorted((blocks(gpu.memory) for gpu in node.gpus), reverse=True)))

    def could_run(self, request: Request) -> bool:
        """Return whether it fits alone, on unused GPUs."""
        count = max(1, request.whole_gpus)
        return len(self.blocks) >= count and self.blocks[count - 1] >= request.blocks

    def could_run_all(self, requests: Collection[Request]) -> bool:
        """Return whether their sums fit at the same time."""
        if gpus_of(requests) > len(self.blocks):
            return False
        shared = sum(one.blocks for one in requests if not one.whole_gpus)
        return shared <= sum(self.blocks)


def gpus_of(requests: Iterable[Request]) -> int:
    """Return the least number of GPUs that all of these take together."""
    rows = tuple(requests)
    shares = sum(one.cores for one in rows if not one.whole_gpus)
    return sum(one.whole_gpus for one in rows) + -(-shares // CORES_PER_GPU)


def smallest_gpu(nodes: Collection[NodeKind]) -> int:
    """Return the blocks of the smallest GPU known; 0 where none is."""
    return min((node.blocks[-1] for node in nodes if node.blocks), default=0)


def unschedulable(asks: Collection[ContainerAmounts], nodes: Collection[NodeKind]) -> Iterator[str]:
    """Yield why no node known could ever run this pod; nothing where one could, or none is known.

    First each container alone; only where each would fit, all that run at the same time.
    """
    known = [node for node in nodes if node.blocks]
    most = max((len(node.blocks) for node in known), default=0)
    largest = max((node.blocks[0] for node in known), default=0)
    fits = bool(known)
    for ask in asks if known else ():
        request = ask.request
        if request is None or any(node.could_run(request) for node in known):
            continue
        fits, gpus = False, count_of(request.whole_gpus or 1, "GPU")
        if request.whole_gpus > most:
            yield f"{ask.where} asks for {gpus}; the largest node has {most}"
            continue
        yield (
            f"{ask.where} asks for {_memory(request.blocks)} on {gpus}"
            f"{' each' if request.whole_gpus > 1 else ''}; "
            f"no node has that: the largest GPU has {_memory(largest)}"
        )
    together = [ask.request for ask in asks if ask.kind is not ContainerKind.INIT and ask.request]
    if fits and not any(node.could_run_all(together) for node in known):
        gpus = count_of(gpus_of(together), "GPU")
        yield (
            f"its containers together ask for {gpus} or more memory than a node has; "
            f"the largest node has {count_of(most, 'GPU')}"
        )


def _memory(count: int) -> str:
    return f"{count_of(count, 'block')} of memory ({format_bytes(count * MEMORY_BLOCK)})"


class KnownNodes:
    """A handful of kinds, however many nodes there are."""

    def __init__(self, api: KubeClient) -> None:
        self._api = api
        self.kinds: frozenset[NodeKind] = frozenset()
        self._warned = False

    async def run(self) -> None:
        """Refresh for as long as the task lives."""
        while True:
            await self.refresh()
            await asyncio.sleep(PERIOD)

    async def refresh(self) -> None:
        """List all nodes; log once that this fails."""
        found: set[NodeKind] = set()

        def take(node: Any) -> None:
            """Skip a node without GPUs, and one with an inventory that is not understood here."""
            text = (node["metadata"].get("annotations") or {}).get(ANNOTATION_INVENTORY)
            try:
                if text:
                    found.add(NodeKind.of(read_inventory(text)[0]))
            except (RecursionError, *NOT_UNDERSTOOD) as error:
                log.debug("node %s: %s", node["metadata"].get("name"), error)

        try:
            await self._api.list(NODES, take)
            self.kinds = frozenset(found)
            self._warned = False
        except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            log.log(level, "not reading nodes: %s", error)
            self._warned = True
