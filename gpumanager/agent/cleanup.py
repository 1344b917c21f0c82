"""What the agent does now and then: driver directories that no container has mounted go."""

import asyncio
import logging
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.names import CONTAINER_DRIVER
from gpumanager.runtime.values import LiveContainers
from gpumanager.volume.mounted import prune_unused
from gpumanager.volume.values import DriverVolumes

log = logging.getLogger(__name__)

PRUNE_SECONDS: Final = 600.0


async def prune_every(seconds: float, volumes: DriverVolumes, runtime: LiveContainers) -> None:
    """For as long as the task lives; nothing while the container runtime does not answer."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await prune_drivers(volumes, runtime)
        except (GpuManagerError, OSError) as error:
            log.debug("cannot clean up driver directories now: %s", error)


async def prune_drivers(volumes: DriverVolumes, runtime: LiveContainers) -> None:
    """Once. Raises what the container runtime and the disk do."""
    live = await runtime.list()
    pids = [one.pid for one in live if one.source(str(CONTAINER_DRIVER)) is not None]
    for path in await asyncio.to_thread(prune_unused, volumes, pids):
        log.info("removed %s: no container has this driver mounted", path)
