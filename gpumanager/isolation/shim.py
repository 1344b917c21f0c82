"""A share of a GPU: the container's CUDA calls meet the shim, which the virtual manager limits."""

from pathlib import Path

from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ENV_JULIA, ENV_VISIBLE, VOID, ContainerEdits, Mount, driver
from gpumanager.isolation.protocol import Means
from gpumanager.limits.pages.usage import AllocationUsage
from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_COMPAT, CONTAINER_TURNS, CONTAINER_VCUDA
from gpumanager.units import MEMORY_BLOCK, Bytes


class Shim:
    """A directory for each grant, with a socket and the limits, and the driver with shims in it."""

    def __init__(self, means: Means) -> None:
        self._virtual = means.virtual
        self._volumes = means.volumes

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
