"""How much of each GPU the grants of this node hold, and how much is free. Pure.

The ledger sums cores and memory blocks by GPU. The kubelet may hand out the same capacity twice: an
app container gets device IDs that its init container had, all of them or some. Example: 30 cores,
then 50 of which 10 are among the 30: together 70. A device ID is capacity: where
several grants on a GPU have the same one, it counts once. A block that a GPU had once, when more of
its memory was granted, counts not at all: what is not there any more is not missing either.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.grants.device_ids import DeviceIDs
from gpumanager.grants.grant import Grant
from gpumanager.placement.values import FreeGpu, FreeGpus
from gpumanager.units import CORES_PER_GPU, blocks


@dataclass(frozen=True, slots=True)
class Holdings:
    """What is held of one GPU. exclusive: one grant has all of it."""

    cores: int
    blocks: int
    grants: int
    exclusive: bool


class Ledger:
    """Sums on one topology, as one interface may use it. A value, but for what it has counted.

    ids: the device IDs of the topology, where they are made already. closed: GPUs on which nothing
    new is granted, and why not; grants that are there stay. leaving: GPUs on which nothing new is
    placed; a call that names one of them is served. foreign: GPUs of another interface, on which
    nothing fits.
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
    ) -> None:
        self.topology = topology
        self.ids = ids or DeviceIDs(topology)
        self.closed, self.leaving, self.foreign = closed, leaving, foreign
        self._counted: Mapping[GpuUUID, tuple[list[Grant], Holdings]] = {}

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
        held, closed = self._held(grants), self.closed if leaving else {*self.closed, *self.leaving}
        return FreeGpus(
            {gpu.uuid: self._open(gpu, held[gpu.uuid], closed) for gpu in self.topology.gpus}
        )

    def unheld(self, grants: Iterable[Grant]) -> FreeGpus:
        """Return what no grant holds, also of GPUs on which nothing new is placed."""
        held = self._held(grants)
        return FreeGpus({gpu.uuid: _book(gpu, held[gpu.uuid]) for gpu in self.topology.gpus})

    def book(self, grants: Iterable[Grant], gpu: Gpu) -> FreeGpu:
        """Return what the grants leave free of one GPU, for a call that names it."""
        return self._open(gpu, self._sum(gpu.uuid, _on(grants, gpu.uuid)), self.closed)

    def fits(self, others: Iterable[Grant], grant: Grant) -> bool:
        """Return whether `grant` fits on its GPUs beside `others`."""
        others = tuple(others)
        return all(
            (gpu := self.topology.by_uuid(uuid)) is not None and self._fits_on(gpu, others, grant)
            for uuid in grant.shares
        )

    def _held(self, grants: Iterable[Grant]) -> Mapping[GpuUUID, Holdings]:
        """Return the sums of each GPU. One whose grants are those of the last time is not counted
        again."""
        on: dict[GpuUUID, list[Grant]] = {gpu.uuid: [] for gpu in self.topology.gpus}
        for grant in grants:
            for uuid in grant.shares if grant.counts else ():
                if uuid in on:
                    on[uuid].append(grant)
        known = self._counted
        self._counted = {
            uuid: last
            if (last := known.get(uuid)) and last[0] == found
            else (found, self._sum(uuid, found))
            for uuid, found in on.items()
        }
        return {uuid: held for uuid, (_, held) in self._counted.items()}

    def _sum(self, gpu: GpuUUID, grants: Sequence[Grant]) -> Holdings:
        shares = [grant.shares[gpu] for grant in grants]
        cores, blocks, nothing_new = self.repeated(grants)
        return Holdings(
            sum(share.cores for share in shares) - cores,
            sum(share.blocks for share in shares) - blocks,
            len(grants) - nothing_new,
            any(share.exclusive for share in shares),
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
        held = self._sum(gpu.uuid, shared)
        return held.cores <= CORES_PER_GPU and held.blocks <= blocks(gpu.memory)

    def _excludes(self, gpu: GpuUUID, one: Grant, other: Grant) -> bool:
        """A whole GPU has one holder, unless both have the same device IDs."""
        exclusive = one.shares[gpu].exclusive or other.shares[gpu].exclusive
        return exclusive and not self.repeated([one, other])[0]

    def _open(self, gpu: Gpu, held: Holdings, closed: Container[GpuUUID]) -> FreeGpu:
        return (
            FreeGpu(0, 0, held.grants, blocks(gpu.memory))
            if gpu.uuid in closed
            else _book(gpu, held)
        )


def _on(grants: Iterable[Grant], gpu: GpuUUID) -> list[Grant]:
    return [grant for grant in grants if gpu in grant.shares and grant.counts]


def _book(gpu: Gpu, held: Holdings) -> FreeGpu:
    if held.exclusive:
        return FreeGpu(0, 0, held.grants, blocks(gpu.memory))
    memory = blocks(gpu.memory)
    return FreeGpu(CORES_PER_GPU - held.cores, memory - held.blocks, held.grants, memory)
