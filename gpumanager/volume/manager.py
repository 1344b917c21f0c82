"""The volume manager: from the driver on the host to two directories containers can mount.

Run at the agent's start. Everything is found, laid out and checked before anything is written;
then the two volumes are published one after the other.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from gpumanager.errors import InputError
from gpumanager.volume.config import Volume, VolumeConfig
from gpumanager.volume.disk import Disk
from gpumanager.volume.driver import Driver, find_driver
from gpumanager.volume.errors import DriverNotFound
from gpumanager.volume.find import Component, find_libraries, find_programs
from gpumanager.volume.host import Host, read_host
from gpumanager.volume.layout import Plan, lay_out
from gpumanager.volume.mirror import DISK, mirror
from gpumanager.volume.shims import Shims, put_shims
from gpumanager.volume.values import DriverVolumes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Contents:
    """What one volume is made of."""

    libraries: tuple[Component, ...]
    plan: Plan
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """All that is to be published."""

    driver: Driver
    shared: Plan
    whole: Plan
    warnings: tuple[str, ...]


def publish(
    config: VolumeConfig, *, root: Path, shims: Shims, base: Path | None = None, disk: Disk = DISK
) -> DriverVolumes:
    """Mirror the driver found under `root`, once with the shims and once without.

    base: instead of the configuration's. The directories returned are stable names that lead to
    what was published last, so that a container that restarts after an upgrade gets the driver
    that runs then. Raises LdCacheUnreadable, DriverNotFound, ShimUnusable, MirrorFailed, and
    InputError for a volume without libcuda.
    """
    host = read_host(root)
    try:
        prepared = _prepare(config, host, shims)
    except OSError as error:
        cause = f"its files changed while they were read: {error.strerror} ({error.filename})"
        raise DriverNotFound(root, cause) from error
    volumes = DriverVolumes(
        shared=_publish(prepared.shared, config.shared, base, disk),
        whole=_publish(prepared.whole, config.whole, base, disk),
        version=prepared.driver.version,
        warnings=tuple(dict.fromkeys(prepared.warnings)),
    )
    for warning in volumes.warnings:
        log.warning("%s", warning)
    return volumes


def _prepare(config: VolumeConfig, host: Host, shims: Shims) -> _Prepared:
    driver = find_driver(host)
    shared = _contents(config, config.shared, host, driver)
    whole = _contents(config, config.whole, host, driver)
    shimmed, about_shims = put_shims(shared.plan, shared.libraries, shims, driver, host)
    warnings = (*driver.warnings, *shared.warnings, *whole.warnings, *about_shims)
    return _Prepared(driver, shimmed, whole.plan, warnings)


def _contents(config: VolumeConfig, volume: Volume, host: Host, driver: Driver) -> _Contents:
    libraries = find_libraries(host, volume.libraries)
    programs = find_programs(host, volume.binaries)
    own = tuple(library for library in libraries.components if driver.owns(library))
    if driver.cuda not in own:
        cause = f"volume {volume.name!r} lists no library prefix that matches {driver.cuda.name}"
        raise InputError(config.source, cause)
    plan = lay_out(programs.components, own)
    return _Contents(own, plan, (*libraries.warnings, *programs.warnings))


def _publish(plan: Plan, volume: Volume, base: Path | None, disk: Disk) -> Path:
    home = (base or volume.base).absolute()
    directory = mirror(plan, home, volume.name, disk)
    log.info("driver volume %s is %s", volume.name, directory)
    return home / volume.name
