"""The ledger of a node whose capacity is handed out as device IDs. Pure.

A device ID is capacity, whoever has it: where several grants on a GPU have the same one, it counts
once. A block that a GPU had once, when more of its memory was promised, counts not at all: what is
not there any more is not missing either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpumanager.deviceplugin.device_ids import DeviceIDs
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import DevicePluginSource, Grant, shares_of
from gpumanager.grants.ledger import Ledger, Repeated
from gpumanager.isolation.table import isolation_of
from gpumanager.names import VCORE


class DeviceLedger(Ledger):
    """ids: those of the topology."""

    def adopt(self, topology: Topology) -> None:
        """Raises IndistinctGPUs, and then nothing has changed."""
        self.ids = DeviceIDs(topology)
        super().adopt(topology)

    def repeated(self, grants: Sequence[Grant]) -> Repeated:
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
        return Repeated(cores, blocks, nothing_new)


def ids_of(grant: Grant, resource: str) -> tuple[str, ...]:
    return grant.ids.core_ids if resource == VCORE else grant.ids.memory_ids


def all_ids(grant: Grant) -> tuple[str, ...]:
    return (*grant.ids.core_ids, *grant.ids.memory_ids)


def of_admission(grants: Iterable[Grant], admission: str) -> list[Grant]:
    return [grant for grant in grants if grant.ids.admission == admission]


def resized(grant: Grant, source: DevicePluginSource) -> Grant:
    """With these IDs, on the GPUs that it has."""
    return on_gpus(replace(grant, source=source), grant.gpus, exclusive=grant.exclusive)


def on_gpus(grant: Grant, gpus: Iterable[GpuUUID], *, exclusive: bool) -> Grant:
    """As much as its IDs are, on these GPUs. Until its cores are asked for nothing holds it."""
    cores, memory = grant.ids.core_ids, grant.ids.memory_ids
    shares = shares_of(gpus, len(cores), len(memory), exclusive=exclusive)
    return replace(grant, shares=shares, isolation=isolation_of(shares) if cores else "")
