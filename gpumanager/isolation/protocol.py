"""How a grant is held: what each back end does, and what all of them work with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpumanager.grants.grant import Grant
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.limits.values import AllocationUsage, Limit
from gpumanager.volume.values import DriverVolumes


class Isolation(Protocol):
    """Holds containers to their grants, in one way. A row of `isolation.table` says which."""

    async def prepare(self, grant: Grant) -> ContainerEdits:
        """Hold it before its container starts; safe to repeat. Raises GpuManagerError, OSError."""

    async def update(self, grant: Grant) -> None:
        """Hold it to this from now on: another share, or another owner's. As `prepare`."""

    async def release(self, name: AllocationID) -> None:
        """Stop holding it; one that is not known is no error."""

    def usage(self, name: AllocationID) -> AllocationUsage | None:
        """Return what its container uses; None where that is not measured. Raises
        GpuManagerError."""


class AllocationServer(Protocol):
    """Serves each allocation its limits, from a directory: `limits.manager`."""

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        """Serve this allocation, now with these limits; safe to repeat.

        Creates or reuses the allocation's directory, writes the configuration, listens on the
        socket. Running processes see a change of limits at once. Returns the host directory to
        mount at /etc/vcuda.
        """

    def link_driver(self, allocation: AllocationID, driver: Path) -> Path:
        """Return a link in its directory that leads to this driver from now on.

        Which driver may depend on the pod, which Allocate does not know. The runtime follows the
        link when it creates the container, after PreStartContainer. Raises GpuManagerError.
        """

    def turns(self, allocation: AllocationID) -> Path | None:
        """Return the host directory to mount at /etc/vcuda/turns, of an allocation that is served
        and takes turns. Raises GpuManagerError."""

    async def close(self, allocation: AllocationID) -> None:
        """Stop serving it and remove its directory; an unknown allocation is no error."""

    def allocations(self) -> tuple[AllocationID, ...]:
        """Return those that have a directory, served or not."""

    def limits(self, allocation: AllocationID) -> tuple[Limit, ...]:
        """Return the limits in its directory; nothing where that cannot be read."""

    def usage(self, allocation: AllocationID) -> AllocationUsage:
        """Raises GpuManagerError where that cannot be read."""


@dataclass(frozen=True, slots=True)
class Means:
    """What back ends work with."""

    virtual: AllocationServer
    volumes: DriverVolumes
