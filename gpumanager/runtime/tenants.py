"""Whose processes are on each GPU: what NVML lists, and what the cgroups say of that."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.kubelet.pods import PodUID
from gpumanager.runtime.processes import Containers

logger = logging.getLogger(__name__)


class GpuTenants:
    """held: GPU → host pid → anything; raises GpuManagerError. It may block."""

    def __init__(
        self, held: Callable[[], Mapping[GpuUUID, Mapping[int, object]]], containers: Containers
    ) -> None:
        self._held = held
        self._containers = containers

    async def pods(self) -> dict[GpuUUID, frozenset[PodUID]] | None:
        """The pods with a process on each GPU; None where the driver does not tell.

        Processes of no pod, and those whose pod cannot be told, are left out.
        """
        try:
            held = await asyncio.to_thread(self._held)
        except GpuManagerError as error:
            logger.debug("whose processes are on the GPUs is not known: %s", error)
            return None
        return {gpu: self._of(pids) for gpu, pids in held.items()}

    def _of(self, pids: Iterable[int]) -> frozenset[PodUID]:
        found = (self._containers.of_pid(pid) for pid in pids)
        return frozenset(one.pod_uid for one in found if one is not None)
