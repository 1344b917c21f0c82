"""What the allocator needs of the world, as Protocols: each has a real and a simulated side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

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
