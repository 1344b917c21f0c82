"""How much of each GPU the grants of this node hold, and how much is free. Pure.

The ledger sums cores and memory blocks by GPU. The kubelet may hand out the same capacity twice: an
app container gets device IDs that its init container had, all of them or some. Example: 30 cores,
then 50 of which 10 are among the 30: together 70. A device ID is capacity: where
several grants on a GPU have the same one, it counts once. A block that a GPU had once, when more of
its memory was granted, counts not at all: what is not there any more is not missing either.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.grants.device_ids import DeviceIDs
from gpumanager.grants.grant import Grant
from gpumanager.placement.values import FreeGpu, FreeGpus
from gpumanager.units import CORES_PER_GPU, blocks

Sums = dict[GpuUUID, tuple[list[Grant], FreeGpu]]
"""What the grants of a GPU leave."""


class Ledger:
    """Sums on one topology, as one interface may use it. A value.

    ids: the device IDs of the topology, where they are made already. closed: GPUs on which nothing
    new is granted, and why not; grants that are there stay. leaving: GPUs on which nothing new is
    placed; a call that names one of them is served. foreign: GPUs of another interface, on which
    nothing fits. sums: kept for the next ledger of the topology: a grant changes one GPU of many.
    Raises IndistinctGPUs.
    """

    def __init__(
        self,
        topology: Topology,
        ids: DeviceIDs | None = None,
        *,
        closed: Mapping[GpuUUID, str] = MappingProxyType({}),
        leaving: frozenset[GpuUUID] = frozenset(),
        foreign: frozenset[GpuUUID] = frozenset(),
        sums: Sums | None = None,
    ) -> None:
        self.topology = topology
        self.ids = ids or DeviceIDs(topology)
        self.closed, self.leaving, self.foreign = closed, leaving, foreign
        self._sums: Sums = {} if sums is None else sums

    def repeated(self, grants: Sequence[Grant]) -> tuple[int, int, int]:
        """Return what these grants of one GPU count twice, by their device IDs: cores, blocks, and
        grants of which all is counted twice."""
        cores = blocks = nothing_new = 0
        seen: set[str] = set()
        for grant in grants:
            source, before = grant.ids, len(seen)
            seen.update(source.core_ids)
            cores += before + len(source.core_ids) - len(seen)
            with_cores = len(seen)
            there = [one for one in source.memory_ids if not self.ids.was_here(one)]
            seen.update(there)
            blocks += with_cores + len(source.memory_ids) - len(seen)
            # A grant without any ID is proved by other evidence, and is something of its own.
            nothing_new += len(seen) == before and bool(source.core_ids or there)
        return cores, blocks, nothing_new

    def books(self, grants: Iterable[Grant], *, leaving: bool = False) -> FreeGpus:
        """Return what the grants leave free. Grants of GPUs that are gone count nowhere.

        leaving: also of GPUs that leave, for a call that finds no other.
        """
        closed = self.closed if leaving else {*self.closed, *self.leaving}
        gpus = (gpu for gpu in self.topology.gpus if gpu.uuid in closed)
        return self.unheld(grants).without(gpus)

    def unheld(self, grants: Iterable[Grant]) -> FreeGpus:
        """Return what no grant holds, also of GPUs on which nothing new is placed."""
        on: dict[GpuUUID, list[Grant]] = {gpu.uuid: [] for gpu in self.topology.gpus}
        for grant in grants:
            for uuid in grant.shares:
                on.get(uuid, []).append(grant)
        for gpu in self.topology.gpus:
            known = self._sums.get(gpu.uuid)
            if known is None or known[0] != on[gpu.uuid]:
                self._sums[gpu.uuid] = on[gpu.uuid], self._left(gpu, on[gpu.uuid])
        return FreeGpus({gpu.uuid: self._sums[gpu.uuid][1] for gpu in self.topology.gpus})

    def book(self, grants: Iterable[Grant], gpu: Gpu) -> FreeGpu:
        """Return what the grants leave free of one GPU, for a call that names it."""
        left = self._left(gpu, grants)
        return left._replace(cores=0, blocks=0) if gpu.uuid in self.closed else left

    def fits(self, others: Iterable[Grant], grant: Grant) -> bool:
        """Return whether `grant` fits on its GPUs beside `others`."""
        others = tuple(others)
        return all(
            (gpu := self.topology.by_uuid(uuid)) is not None and self._fits_on(gpu, others, grant)
            for uuid in grant.shares
        )

    def _left(self, gpu: Gpu, grants: Iterable[Grant]) -> FreeGpu:
        """Return what they leave; less than nothing where it is not enough. Nothing is left of a
        GPU that one of them has all of."""
        on, memory = _on(grants, gpu.uuid), blocks(gpu.memory)
        cores, repeated, nothing_new = self.repeated(on)
        shares = [grant.shares[gpu.uuid] for grant in on]
        if any(share.exclusive for share in shares):
            return FreeGpu(0, 0, len(on) - nothing_new, memory)
        return FreeGpu(
            CORES_PER_GPU + cores - sum(share.cores for share in shares),
            memory + repeated - sum(share.blocks for share in shares),
            len(on) - nothing_new,
            memory,
        )

    def _fits_on(self, gpu: Gpu, others: Iterable[Grant], grant: Grant) -> bool:
        beside = _on(others, gpu.uuid)
        if gpu.uuid in self.foreign or any(
            self._excludes(gpu.uuid, other, grant) for other in beside
        ):
            return False
        _, not_there, _ = self.repeated([grant])
        if grant.shares[gpu.uuid].blocks - not_there > blocks(gpu.memory):
            return False
        shared = [one for one in (*beside, grant) if not one.shares[gpu.uuid].exclusive]
        left = self._left(gpu, shared)
        return left.cores >= 0 and left.blocks >= 0

    def _excludes(self, gpu: GpuUUID, one: Grant, other: Grant) -> bool:
        """A whole GPU has one holder, unless both have the same device IDs."""
        exclusive = one.shares[gpu].exclusive or other.shares[gpu].exclusive
        return exclusive and not self.repeated([one, other])[0]


def _on(grants: Iterable[Grant], gpu: GpuUUID) -> list[Grant]:
    return [grant for grant in grants if gpu in grant.shares and grant.counts]
