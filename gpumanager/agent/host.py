"""What the agent and `gpumanager doctor` use of the host they run on: driver, NVML, runtime."""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import vcuda_shim
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.kernel_modules import HostKernel, load_modules
from gpumanager.gpu.nvml_library import LIBRARY
from gpumanager.names import CONTAINER_DRIVER
from gpumanager.runtime.cri import ContainerRuntime, candidates, parse_endpoint
from gpumanager.runtime.status import LiveContainers
from gpumanager.settings import LOAD_MISSING, OVER_COMPAT, AgentSettings
from gpumanager.volume.config import VolumeConfig
from gpumanager.volume.driver import find_nvml
from gpumanager.volume.manager import publish
from gpumanager.volume.mirror import prune_unused
from gpumanager.volume.shims import Shims
from gpumanager.volume.values import DriverVolumes

log = logging.getLogger(__name__)

SHIMS: Final = Shims(
    cuda=vcuda_shim.SHIM_CUDA,
    ml=vcuda_shim.SHIM_NVML,
    cuda_link=vcuda_shim.LINK_CUDA,
    ml_link=vcuda_shim.LINK_NVML,
)


def load_driver(settings: AgentSettings) -> None:
    """Load the driver's missing kernel modules, if the settings want that. What stays missing is
    logged."""
    if settings.load_modules == LOAD_MISSING:
        kernel = HostKernel(settings.device_directory, settings.driver_root)
        if missing := load_modules(kernel):
            log.warning(
                "%s: still missing: %s; check the driver's kernel modules",
                settings.device_directory,
                ", ".join(missing),
            )


def use_driver_root(root: Path) -> None:
    """Load NVML from this root, where the driver is installed under another one than ours."""
    if root != Path("/"):
        LIBRARY.lies_where(partial(find_nvml, root))


def publish_driver(settings: AgentSettings, config: VolumeConfig) -> DriverVolumes:
    """Mirror the host's driver, with and without the shims."""
    volumes = publish(
        config,
        root=settings.driver_root,
        shims=SHIMS,
        base=settings.volume_base,
        opencl=settings.opencl_in_shares,
    )
    log.info(
        "driver %s: libraries for shares in %s, for whole GPUs in %s",
        *(volumes.version, volumes.shared, volumes.whole),
    )
    return replace(
        volumes, over_compat=settings.cuda_compat == OVER_COMPAT, compat32=settings.compat32
    )


def container_runtime(settings: AgentSettings) -> ContainerRuntime:
    """Return the client of the container runtime. Raises InputError for an endpoint that is
    none."""
    asked, docker = settings.container_runtime_endpoint, settings.docker_endpoint
    sockets = candidates(
        parse_endpoint(asked) if asked else None,
        parse_endpoint(docker, "--docker-endpoint") if docker else None,
    )
    return ContainerRuntime(sockets, settings.runtime_request_timeout)


PRUNE_SECONDS: Final = 600.0


async def prune_every(seconds: float, volumes: DriverVolumes, runtime: LiveContainers) -> None:
    """Prune driver directories for as long as the task lives; not while the runtime is silent."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await prune_drivers(volumes, runtime)
        except (GpuManagerError, OSError) as error:
            log.debug("cannot clean up driver directories now: %s", error)


async def prune_drivers(volumes: DriverVolumes, runtime: LiveContainers) -> None:
    """Remove driver directories that no container has mounted. Raises what runtime and disk
    raise."""
    live = await runtime.list()
    pids = [one.pid for one in live if one.source(str(CONTAINER_DRIVER)) is not None]
    for path in await asyncio.to_thread(prune_unused, volumes, pids):
        log.info("removed %s: no container has this driver mounted", path)
