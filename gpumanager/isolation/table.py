"""The back ends that hold grants: one row each, and the first that takes the shares holds them.

The name of the row stands in the grant and in the journal, so that a grant stays with the back end
that began it, also when the table has changed since.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import DevicePluginSource, Grant, Share
from gpumanager.ids import AllocationID
from gpumanager.isolation.cdi import ALLOCATION, AllocationFiles, CdiDevice, spec
from gpumanager.isolation.edits import (
    ENV_ALLOCATION,
    ENV_GPUS,
    ENV_JULIA,
    ENV_VISIBLE,
    VOID,
    ContainerEdits,
    DeviceFiles,
    Mount,
    driver,
)
from gpumanager.limits.values import AllocationUsage, Limit
from gpumanager.names import CONTAINER_COMPAT, CONTAINER_TURNS, CONTAINER_VCUDA
from gpumanager.units import MEMORY_BLOCK, Bytes
from gpumanager.volume.values import DriverVolumes

Shares = Mapping[GpuUUID, Share]


class AllocationServer(Protocol):
    """Serves each allocation its limits, from a directory: `limits.manager`, which says more."""

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path: ...
    def link_driver(self, allocation: AllocationID, driver: Path) -> Path: ...
    def turns(self, allocation: AllocationID) -> Path | None: ...
    async def close(self, allocation: AllocationID) -> None: ...
    def allocations(self) -> tuple[AllocationID, ...]: ...
    def limits(self, allocation: AllocationID) -> tuple[Limit, ...]: ...
    def usage(self, allocation: AllocationID) -> AllocationUsage: ...


class Isolation(Protocol):
    """Holds containers to their grants, in one way."""

    async def prepare(self, grant: Grant) -> ContainerEdits:
        """Hold it before its container starts; safe to repeat. Raises GpuManagerError, OSError."""

    async def update(self, grant: Grant) -> None:
        """Hold it to this from now on: another share, or another owner's. As `prepare`."""

    async def release(self, name: AllocationID) -> None:
        """Stop holding it; one that is not known is no error."""

    def usage(self, name: AllocationID) -> AllocationUsage | None:
        """Return what its container uses; None where that is not measured. Raises
        GpuManagerError."""


class PassThrough:
    """Gives a container of whole GPUs the driver's own libraries; nothing limits it."""

    def __init__(self, _limits: AllocationServer, volumes: DriverVolumes) -> None:
        self._volumes = volumes

    async def prepare(self, grant: Grant) -> ContainerEdits:
        visible = ContainerEdits(envs={ENV_VISIBLE: ",".join(grant.shares)})
        return driver(self._volumes, self._volumes.whole) + visible

    async def update(self, grant: Grant) -> None:
        """There is no limit to change."""

    async def release(self, name: AllocationID) -> None:
        """There is nothing to remove."""

    def usage(self, name: AllocationID) -> None:
        del name


class Shim:
    """Gives each grant a directory with a socket and its limits, and the driver with shims in it.

    The container's CUDA calls meet the shim, which the virtual manager limits.
    """

    def __init__(self, virtual: AllocationServer, volumes: DriverVolumes) -> None:
        self._virtual = virtual
        self._volumes = volumes

    async def prepare(self, grant: Grant) -> ContainerEdits:
        directory = await self._virtual.open(grant.id, limits(grant))
        shims = self._lead(grant)
        mounts = [Mount(str(CONTAINER_VCUDA), str(directory))]
        if turns := self._virtual.turns(grant.id):
            mounts.append(Mount(str(CONTAINER_TURNS), str(turns)))  # below the one before it
        if self._volumes.over_compat:
            mounts.append(Mount(str(CONTAINER_COMPAT), str(shims / "lib64")))
        own = ContainerEdits(mounts=tuple(mounts), envs={ENV_VISIBLE: VOID, ENV_JULIA: "false"})
        return driver(self._volumes, shims) + own

    async def update(self, grant: Grant) -> None:
        await self._virtual.open(grant.id, limits(grant))
        self._lead(grant)

    def _lead(self, grant: Grant) -> Path:
        volume = self._volumes.shared if grant.graphics else self._volumes.compute
        return self._virtual.link_driver(grant.id, volume)

    async def release(self, name: AllocationID) -> None:
        await self._virtual.close(name)

    def usage(self, name: AllocationID) -> AllocationUsage:
        return self._virtual.usage(name)


def limits(grant: Grant) -> tuple[Limit, ...]:
    """Return what the shim holds its container to, on each GPU."""
    return tuple(
        Limit(
            gpu,
            Bytes(share.blocks * MEMORY_BLOCK),
            share.cores,
            max(grant.ceiling or 0, share.cores),
        )
        for gpu, share in grant.shares.items()
    )


@dataclass(frozen=True, slots=True)
class BackEnd:
    """A back end. takes: whether it holds grants of these shares."""

    name: str
    takes: Callable[[Shares], bool]
    make: Callable[[AllocationServer, DriverVolumes], Isolation]


def whole_gpus(shares: Shares) -> bool:
    return any(share.exclusive for share in shares.values())


ROWS: Final = (
    BackEnd("passthrough", whole_gpus, PassThrough),
    BackEnd("shim", bool, Shim),
)


def isolation_of(shares: Shares) -> str:
    """Return the name of the back end for these; empty for shares of no GPU that is known."""
    return next((row.name for row in ROWS if row.takes(shares)), "")


class Isolations:
    """The back ends of one node. A grant with no isolation of ours is held by nobody here.

    cdi: None where allocations are never CDI devices, and never were.
    """

    def __init__(
        self,
        virtual: AllocationServer,
        volumes: DriverVolumes,
        files: DeviceFiles,
        cdi: AllocationFiles | None = None,
    ) -> None:
        self._cdi = cdi
        self._virtual = virtual
        self._files = files
        self._back_ends = {row.name: row.make(virtual, volumes) for row in ROWS}

    async def prepare(self, grant: Grant, gpus: tuple[Gpu, ...]) -> ContainerEdits:
        """Hold a grant, and return what its container gets for that. gpus: its own.

        Of an allocation that is a CDI device the kubelet gets the name; and the variables, by which
        an agent without its journal finds the allocation in the kubelet's checkpoint. Raises
        OSError where its CDI file cannot be written, and what the back end raises.
        """
        grant = replace(grant, shares={gpu.uuid: grant.shares[gpu.uuid] for gpu in gpus})
        common = ContainerEdits(
            devices=self._files.of(gpus),
            envs={ENV_GPUS: ",".join(gpu.uuid for gpu in gpus), ENV_ALLOCATION: grant.id},
        )
        edits = common + await self._back_ends[grant.isolation].prepare(grant)
        if not (self._cdi and self._cdi.wanted and isinstance(grant.source, DevicePluginSource)):
            return edits
        device = CdiDevice(grant.id, ContainerEdits(edits.devices, edits.mounts), ALLOCATION)
        self._cdi.files.write(grant.id, spec([device], ()))
        return ContainerEdits(envs=edits.envs, cdi=(device.id,))

    def allocations(self) -> tuple[AllocationID, ...]:
        """Return those that have a directory."""
        return self._virtual.allocations()

    def handed_over(self) -> frozenset[AllocationID]:
        """Return those that have a CDI file."""
        names = self._cdi.files.names() if self._cdi else ()
        return frozenset(AllocationID(name) for name in names)

    def limits(self, name: AllocationID) -> tuple[Limit, ...]:
        """Return the limits in its directory; nothing where that cannot be read."""
        return self._virtual.limits(name)

    async def update(self, grant: Grant) -> None:
        """Hold a grant as it is now. A CDI file that is missing is written again, where all of its
        GPUs are here: a reboot empties the directory, and the kubelet does not ask again."""
        if not grant.isolation:
            return
        await self._back_ends[grant.isolation].update(grant)
        own, cdi = isinstance(grant.source, DevicePluginSource) and not grant.legacy, self._cdi
        if cdi and cdi.wanted and own and grant.id not in cdi.files:
            gpus = tuple(gpu for gpu in cdi.gpus() if gpu.uuid in grant.shares)
            if len(gpus) == len(grant.shares):
                await self.prepare(grant, gpus)

    async def release(self, name: AllocationID) -> None:
        """Release it in all back ends; the journal may not have the one any more."""
        for back_end in self._back_ends.values():
            await back_end.release(name)
        if self._cdi:
            self._cdi.files.remove(name)

    def usage(self, grant: Grant) -> AllocationUsage | None:
        """Return what it uses; None where nothing of ours measures it. Raises GpuManagerError."""
        if not grant.isolation:
            return None
        return self._back_ends[grant.isolation].usage(grant.id)
