"""The pods that have processes on each GPU: what NVML lists, and what the cgroups say of that.

NVML may hang. The reconciler must not wait for it: a thread of its own asks, and what
comes too late is not used, because it tells of an earlier time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.daemon_thread import DaemonThreadExecutor
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import PodUID
from gpumanager.runtime.processes import Containers

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 5.0
"""Bound for one question."""

Held = Mapping[GpuUUID, Mapping[int, object]]


class GpuTenants:
    """held: GPU → host pid → anything; raises GpuManagerError. It may block, and longer than
    `seconds`."""

    def __init__(
        self,
        held: Callable[[], Held],
        containers: Containers,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._held = held
        self._containers = containers
        self._seconds = seconds
        self._thread = DaemonThreadExecutor("gpu-tenants")
        self._asked: asyncio.Future[Held | None] | None = None

    async def pods(self) -> dict[GpuUUID, frozenset[PodUID]] | None:
        """The pods with a process on each GPU; None where the driver does not tell.

        Processes of no pod, and those of a pod that cannot be found, are left out.
        """
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().run_in_executor(self._thread, self._ask)
        await asyncio.wait((self._asked,), timeout=self._seconds)
        held = self._asked.result() if self._asked.done() else None
        return None if held is None else {gpu: self._of(pids) for gpu, pids in held.items()}

    def _ask(self) -> Held | None:
        try:
            return self._held()
        except GpuManagerError as error:
            logger.debug("cannot match GPU processes to pods: %s", error)
            return None

    def _of(self, pids: Iterable[int]) -> frozenset[PodUID]:
        found = (self._containers.of_pid(pid) for pid in pids)
        return frozenset(one.pod_uid for one in found if one is not None)
