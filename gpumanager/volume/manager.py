"""The volume manager: from the driver on the host to the directories containers can mount.

Run at the agent's start. Everything is found, laid out and checked before anything is written;
then the volumes are published one after the other.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumanager.errors import InputError
from gpumanager.volume.config import Volume, VolumeConfig
from gpumanager.volume.driver import Driver, find_driver
from gpumanager.volume.errors import DriverNotFound
from gpumanager.volume.find import Component, find_libraries, find_programs
from gpumanager.volume.host import Host, read_host
from gpumanager.volume.layout import File, Plan, lay_out
from gpumanager.volume.mirror import mirror
from gpumanager.volume.shims import Shims, put_shims
from gpumanager.volume.values import DriverVolumes

log = logging.getLogger(__name__)

OPENCL: Final = "libnvidia-opencl"
"""Carries a driver of its own: it opens the device nodes and calls no function of libcuda."""

GRAPHICS: Final = (
    "libGL",
    "libOpenGL.so",
    "libEGL",
    "libnvidia-eglcore.so",
    "libnvidia-egl-",
    "libnvidia-gl",
    "libnvidia-tls.so",
    "libnvidia-fbc.so",
    "libnvidia-ifr.so",
    "libnvidia-cbl.so",
    "libnvidia-rtcore.so",
    "libnvoptix.so",
    "libnvidia-vksc-core.so",
    "libnvidia-present.so",
    "libnvidia-wayland-client.so",
)
"""OpenGL, EGL and Vulkan, which call no function of libcuda, and what NVIDIA's container toolkit
counts among them."""

COMPUTE: Final = "compute"
"""Behind the name of the shared volume: the one without graphics."""


def publish(
    config: VolumeConfig,
    *,
    root: Path,
    shims: Shims,
    base: Path | None = None,
    opencl: bool = False,
) -> DriverVolumes:
    """Mirror the driver found under `root`, with the shims and without.

    base: instead of the configuration's. opencl: whether shares have OpenCL, unlimited. The
    directories returned are stable names that lead to what was published last, so that a container
    that restarts after an upgrade gets the driver that runs then. Raises LdCacheUnreadable,
    DriverNotFound, ShimUnusable, MirrorFailed, and InputError for a volume without libcuda.
    """
    host = read_host(root)
    try:
        driver = find_driver(host)
        without = () if opencl else (OPENCL,)
        own, libraries, about_own = _contents(config, config.shared, host, driver, without)
        whole, _, about_whole = _contents(config, config.whole, host, driver)
        shimmed, about_shims = put_shims(own, libraries, shims, driver, host)
    except OSError as error:
        cause = f"its files changed while they were read: {error.strerror} ({error.filename})"
        raise DriverNotFound(root, cause) from error
    shared = _publish(shimmed, config.shared, base)
    # The files without graphics become hard links to the published ones, wherever the driver lies.
    compute = tuple(
        replace(one, source=shared / one.path) if isinstance(one, File) else one
        for one in shimmed
        if not one.path.name.startswith(GRAPHICS)
    )
    plain = replace(config.shared, name=f"{config.shared.name}-{COMPUTE}")
    warnings = (*driver.warnings, *about_own, *about_whole, *about_shims)
    volumes = DriverVolumes(
        shared=shared,
        compute=_publish(compute, plain, base),
        whole=_publish(whole, config.whole, base),
        version=driver.version,
        warnings=tuple(dict.fromkeys(warnings)),
    )
    for warning in volumes.warnings:
        log.warning("%s", warning)
    return volumes


def _contents(
    config: VolumeConfig,
    volume: Volume,
    host: Host,
    driver: Driver,
    without: tuple[str, ...] = (),
) -> tuple[Plan, tuple[Component, ...], tuple[str, ...]]:
    """Return the plan of a volume, the driver's libraries in it, and warnings."""
    libraries = find_libraries(host, volume.libraries)
    programs = find_programs(host, volume.binaries)
    own = tuple(
        library
        for library in libraries.components
        if driver.owns(library) and not library.name.startswith(without)
    )
    if driver.cuda not in own:
        cause = f"volume {volume.name!r} lists no library prefix that matches {driver.cuda.name}"
        raise InputError(config.source, cause)
    return lay_out(programs.components, own), own, (*libraries.warnings, *programs.warnings)


def _publish(plan: Plan, volume: Volume, base: Path | None) -> Path:
    home = (base or volume.base).absolute()
    directory = mirror(plan, home, volume.name)
    log.info("driver volume %s is %s", volume.name, directory)
    return home / volume.name
