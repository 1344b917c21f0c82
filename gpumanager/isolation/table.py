"""Which back end holds which grant: one row each, the first that takes its shares.

The name of the row stands in the grant and in the journal, so that a grant stays with the back end
that began it, also when the table has changed since.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Grant, Share
from gpumanager.isolation.edits import ENV_ALLOCATION, ENV_GPUS, ContainerEdits, DeviceFiles
from gpumanager.isolation.passthrough import PassThrough
from gpumanager.isolation.protocol import Isolation, Means
from gpumanager.isolation.shim import Shim
from gpumanager.virtual.pages.usage import AllocationUsage
from gpumanager.virtual.values import AllocationID, Limit

Shares = Mapping[GpuUUID, Share]


@dataclass(frozen=True, slots=True)
class BackEnd:
    """A back end. takes: whether it holds grants of these shares."""

    name: str
    takes: Callable[[Shares], bool]
    make: Callable[[Means], Isolation]


def whole_gpus(shares: Shares) -> bool:
    return any(share.exclusive for share in shares.values())


def any_shares(shares: Shares) -> bool:
    return bool(shares)


ROWS: Final = (
    BackEnd("passthrough", whole_gpus, PassThrough),
    BackEnd("shim", any_shares, Shim),
)


def isolation_of(shares: Shares) -> str:
    """The name of the back end for a grant of these; empty for one of no GPU that is known."""
    return next((row.name for row in ROWS if row.takes(shares)), "")


class Isolations:
    """The back ends of one node. A grant with no isolation of ours is held by nobody here."""

    def __init__(self, means: Means, files: DeviceFiles) -> None:
        self._virtual = means.virtual
        self._files = files
        self._back_ends = {row.name: row.make(means) for row in ROWS}

    async def prepare(self, grant: Grant, gpus: tuple[Gpu, ...]) -> ContainerEdits:
        """Hold it, and what its container is given for that. gpus: its own."""
        grant = replace(grant, shares={gpu.uuid: grant.shares[gpu.uuid] for gpu in gpus})
        common = ContainerEdits(
            devices=self._files.of(gpus),
            envs={ENV_GPUS: ",".join(gpu.uuid for gpu in gpus), ENV_ALLOCATION: grant.id},
        )
        return common + await self._back_ends[grant.isolation].prepare(grant)

    def allocations(self) -> tuple[AllocationID, ...]:
        """Those that have a directory, whoever knows of them."""
        return self._virtual.allocations()

    def limits(self, name: AllocationID) -> tuple[Limit, ...]:
        """What its directory says; nothing where that cannot be read."""
        return self._virtual.limits(name)

    async def update(self, grant: Grant) -> None:
        if grant.isolation:
            await self._back_ends[grant.isolation].update(grant)

    async def release(self, name: AllocationID) -> None:
        """Whoever holds it; the journal may not say that any more."""
        for back_end in self._back_ends.values():
            await back_end.release(name)

    def usage(self, grant: Grant) -> AllocationUsage | None:
        """None where nothing of ours measures it. Raises GpuManagerError."""
        if not grant.isolation:
            return None
        return self._back_ends[grant.isolation].usage(grant.id)
