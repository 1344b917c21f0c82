"""The books of this node, derived from the journal: who holds how much of which GPU. Pure.

Capacity is counted by device IDs, because containers of one pod may hold the same ones: what an
init container had, the kubelet gives to an app container again, and it is the same capacity. IDs
are counted on the GPU their holder really has, not on the one they name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gpumanager.deviceplugin.device_ids import DeviceIDs
from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.grants.journal import Allocation
from gpumanager.grants.live import Live, on_gpu
from gpumanager.placement.values import Books, GpuBook, Request
from gpumanager.units import CORES_PER_GPU, blocks


@dataclass(slots=True)
class _Use:
    """What is counted on one GPU: sets of IDs as bits, and who holds it whole."""

    cores: int = 0
    blocks: int = 0
    processes: int = 0
    whole: bool = False


class Ledger:
    """Counts on one topology."""

    def __init__(self, topology: Topology) -> None:
        self.closed: frozenset[GpuUUID] = frozenset()
        """GPUs on which nothing new is placed; who has them keeps them."""
        self.adopt(topology)

    def adopt(self, topology: Topology) -> None:
        """From now on these are the GPUs; raises IndistinctGPUs, and then nothing has changed."""
        self.ids = DeviceIDs(topology)
        self.topology = topology
        self._counted: dict[GpuUUID, tuple[tuple[Allocation, ...] | None, _Use]] = {}
        self._mask = lru_cache(maxsize=4096)(self.ids.mask)

    def books(self, allocations: Iterable[Allocation]) -> Books:
        """What the allocations leave free. Those of GPUs that are gone count nowhere."""
        uses = self._uses(allocations)
        return Books({gpu.uuid: self._open(gpu, uses[gpu.uuid]) for gpu in self.topology.gpus})

    def unheld(self, allocations: Iterable[Allocation]) -> Books:
        """What nobody holds, also of GPUs on which nothing new is placed."""
        uses = self._uses(allocations)
        return Books({gpu.uuid: _book(gpu, uses[gpu.uuid]) for gpu in self.topology.gpus})

    def _uses(self, allocations: Iterable[Allocation]) -> dict[GpuUUID, _Use]:
        if isinstance(allocations, Live):
            return {gpu.uuid: self._known(allocations, gpu) for gpu in self.topology.gpus}
        uses: dict[GpuUUID, _Use] = {gpu.uuid: _Use() for gpu in self.topology.gpus}
        for allocation in allocations:
            for uuid in allocation.gpus if not allocation.doubted else ():
                if uuid in uses:
                    self._add(uses[uuid], allocation)
        return uses

    def _known(self, live: Live, gpu: Gpu) -> _Use:
        """As long as the same have it, it is used the same."""
        holders = live.on.get(gpu.uuid, ())
        counted, use = self._counted.get(gpu.uuid, (None, _Use()))
        if counted is not holders:
            use = self._use(holders, gpu)
            self._counted[gpu.uuid] = holders, use
        return use

    def book(self, allocations: Iterable[Allocation], gpu: Gpu) -> GpuBook:
        """What the allocations leave free of one GPU."""
        return self._open(gpu, self._use(allocations, gpu))

    def _use(self, allocations: Iterable[Allocation], gpu: Gpu) -> _Use:
        use = _Use()
        for allocation in on_gpu(allocations, gpu.uuid):
            if not allocation.doubted:
                self._add(use, allocation)
        return use

    def fits(self, others: Iterable[Allocation], allocation: Allocation) -> bool:
        """True if `allocation` can hold what it says, on its GPUs, beside `others`."""
        return all(
            (gpu := self.topology.by_uuid(uuid)) is not None
            and self._fits_on(gpu, others, allocation)
            for uuid in allocation.gpus
        )

    def _fits_on(self, gpu: Gpu, others: Iterable[Allocation], allocation: Allocation) -> bool:
        beside = [other for other in on_gpu(others, gpu.uuid) if not other.doubted]
        if any(self._exclude(other, allocation) for other in beside):
            return False
        if allocation.blocks > blocks(gpu.memory) + self.ids.gone(allocation.memory_ids):
            return False
        shares = [a for a in (*beside, allocation) if not a.whole]
        book = _book(gpu, self._use(shares, gpu))
        return book.free_cores >= 0 and book.free_blocks >= 0

    def _exclude(self, one: Allocation, other: Allocation) -> bool:
        """A GPU is whole for one holder, unless the other has the same devices again."""
        again = self._mask(one.core_ids) & self._mask(other.core_ids)
        return (one.whole or other.whole) and not again

    def _open(self, gpu: Gpu, use: _Use) -> GpuBook:
        return GpuBook(0, 0, use.processes) if gpu.uuid in self.closed else _book(gpu, use)

    def _add(self, use: _Use, allocation: Allocation) -> None:
        cores, memory = self._mask(allocation.core_ids), self._mask(allocation.memory_ids)
        use.processes += bool((cores | memory) & ~(use.cores | use.blocks))
        use.cores |= cores
        use.blocks |= memory
        use.whole |= allocation.whole

    def has_room(self, book: GpuBook, gpu: Gpu, request: Request) -> bool:
        """True if `request`, or its part on each GPU, is free on `gpu`, whose book this is."""
        if request.whole_gpus:
            return book.untouched and blocks(gpu.memory) >= request.blocks
        return book.free_cores >= request.cores and book.free_blocks >= request.blocks


def _book(gpu: Gpu, use: _Use) -> GpuBook:
    if use.whole:
        return GpuBook(0, 0, use.processes)
    return GpuBook(
        CORES_PER_GPU - use.cores.bit_count(),
        blocks(gpu.memory) - use.blocks.bit_count(),
        use.processes,
    )
