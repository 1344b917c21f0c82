"""What the allocator needs of the world, as Protocols: each has a real and a simulated side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.journal import Claimant
from gpumanager.kubelet.pods import PodUID
from gpumanager.virtual.values import AllocationID, Limit


class VirtualManager(Protocol):
    """Serves each allocation its limits."""

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        """Serve this allocation, now with these limits; safe to repeat.

        Creates or reuses the allocation's directory, writes the configuration, listens on the
        socket. Running processes see a change of limits at once. Returns the host directory to
        mount at /etc/vcuda.
        """

    async def close(self, allocation: AllocationID) -> None:
        """Stop serving it and remove its directory; an unknown allocation is no error."""

    def allocations(self) -> tuple[AllocationID, ...]:
        """Those that have a directory, served or not."""

    def limits(self, allocation: AllocationID) -> tuple[Limit, ...]:
        """What its directory says; nothing where that cannot be read."""


class Tenants(Protocol):
    """Whose processes are on the GPUs."""

    async def pods(self) -> Mapping[GpuUUID, frozenset[PodUID]] | None:
        """The pods with a process on each GPU, as their cgroups name them; None: not known."""


class Annotations(Protocol):
    """Keeps what a pod's annotations say of its GPUs true."""

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        """This container has these GPUs, whatever was planned. Returns at once."""
