"""Looking for GPUs until there are some, and again when others appear.

A node may start before its driver does, lose a GPU, and get it back. What was ever seen stays
known: containers may hold it, and the kubelet must be told of it, as unhealthy.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml import SYSFS, NvmlError, discover_here
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.values import Bond, Level, Topology, topology
from gpumanager.units import Bytes

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
"""Between two looks for the first GPU."""
ANSWER_SECONDS: Final = 10.0
"""Bound for one look."""

Discover = Callable[[], Topology]


class DeviceDiscovery:
    """Lists the GPUs. A list that hangs is waited for by the next call."""

    def __init__(
        self, nvml: NvmlService, discover: Discover, *, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._nvml = nvml
        self._discover = discover
        self._answer_seconds = answer_seconds
        self._running: asyncio.Task[Topology] | None = None
        self.missing = ""
        """Why there is no GPU to offer yet, while `first` waits for one."""

    @classmethod
    def here(
        cls, nvml: NvmlService, sysfs: Path = SYSFS, reserved: Bytes | None = None
    ) -> "DeviceDiscovery":
        """reserved: of each GPU; None: what its driver keeps."""
        return cls(nvml, partial(discover_here, sysfs, reserved))

    async def look(self) -> Topology:
        """List the GPUs there are now; raises NvmlError."""
        if self._running is None:
            self._running = asyncio.create_task(self._nvml.ask(self._discover, None))
        try:
            async with asyncio.timeout(self._answer_seconds):
                found = await asyncio.shield(self._running)
        except TimeoutError as error:
            raise NvmlError("discovering GPUs: the driver does not answer NVML") from error
        except GpuManagerError:
            self._running = None
            raise
        self._running = None
        return found

    async def first(self, pause: float = LOOK_SECONDS) -> Topology:
        """Wait until there is at least one; log why there is none, when the reason changes."""
        log.info("discovering GPUs")
        while True:
            try:
                found = await self.look()
                reason = "the driver lists no GPU"
                if found.gpus:
                    self.missing = ""
                    return found
            except NvmlError as error:
                reason = str(error)
            if reason != self.missing:
                log.warning("no usable GPU yet, retrying: %s", reason)
                self.missing = reason
            await asyncio.sleep(pause)


def joined(known: Topology, found: Topology) -> Topology:
    """Return what was found, and behind it, far from everything, what is known and missing."""
    missing = [gpu for gpu in known.gpus if found.by_uuid(gpu.uuid) is None]
    present = len(found.gpus)
    gpus = [
        *found.gpus,
        *(replace(gpu, index=index) for index, gpu in enumerate(missing, start=present)),
    ]
    every = range(len(gpus))
    bonds = [[None if a == b else Bond(Level.SYS) for b in every] for a in every]
    for row, between_present in zip(bonds, found.bonds, strict=False):
        row[:present] = between_present
    return topology(gpus, bonds)
