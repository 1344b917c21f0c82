"""The pods that have processes on each GPU: what NVML lists, and what the cgroups say of that."""

from collections.abc import Iterable
from typing import Final

from gpumanager.gpu.nvml_service import ANSWER_SECONDS, NvmlReader, NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import PodUID
from gpumanager.runtime.processes import Containers

EVERY_PROCESS: Final = NvmlQuery(processes=None)


class GpuTenants:
    """Of all GPUs. seconds: for NVML to answer."""

    def __init__(
        self, nvml: NvmlService, containers: Containers, seconds: float = ANSWER_SECONDS
    ) -> None:
        self._nvml = NvmlReader(nvml, "cannot match GPU processes to pods", seconds)
        self._containers = containers

    async def pods(self) -> dict[GpuUUID, frozenset[PodUID]] | None:
        """Return the pods with a process on each GPU; None where the driver does not tell of all
        GPUs.

        Processes of no pod, and those of a pod that cannot be found, are left out.
        """
        reading = await self._nvml.read(EVERY_PROCESS)
        if reading is None or not reading.complete:
            return None
        return {gpu: self._of(pids) for gpu, pids in reading.held.items()}

    def _of(self, pids: Iterable[int]) -> frozenset[PodUID]:
        found = (self._containers.of_pid(pid) for pid in pids)
        return frozenset(one.pod_uid for one in found if one is not None)
