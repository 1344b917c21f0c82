"""What the allocator needs of the world, as Protocols: each has a real and a simulated side."""

from collections.abc import Mapping
from typing import Protocol

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Claimant
from gpumanager.kube.pod import PodUID


class Tenants(Protocol):
    """The pods that have processes on each GPU."""

    async def pods(self) -> Mapping[GpuUUID, frozenset[PodUID]] | None:
        """The pods with a process on each GPU, as their cgroups name them; None: not known."""


class Annotations(Protocol):
    """Keeps what a pod's annotations say of its GPUs true."""

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        """This container has these GPUs, whatever was planned. Returns at once."""
