"""Which driver a host runs: the one whose libcuda its dynamic linker opens.

A host may keep several (an upgrade, CUDA's compatibility package). All of their libraries carry
the version at the end of the file name, which is how the others' are told apart and left out.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumanager.volume.errors import DriverNotFound, LdCacheUnreadable
from gpumanager.volume.find import Component, find_libraries
from gpumanager.volume.host import Host, read_host

_VERSIONED: Final = re.compile(r"libcuda\.so\.(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True)
class Driver:
    """version: `555.58.02`, all of it. cuda: its 64-bit libcuda. others: versions beside it."""

    version: str
    cuda: Component
    others: frozenset[str] = frozenset()

    @property
    def warnings(self) -> tuple[str, ...]:
        found = list[str]()
        if self.others:
            others = ", ".join(sorted(self.others))
            found.append(
                f"several drivers are installed: {self.version} is used, as libcuda.so.1 leads "
                f"to {self.cuda.path}; left out: {others}"
            )
        if not self.cuda.elf.symbolic:
            path = self.cuda.path
            found.append(f"{path} is not linked -Bsymbolic: its own calls may meet the shim")
        return tuple(found)

    def owns(self, component: Component) -> bool:
        """Return whether a library is not another version's."""
        return not component.path.name.endswith(tuple(f".so.{other}" for other in self.others))


def find_nvml(root: Path) -> Path | None:
    """Find the driver's 64-bit libnvidia-ml under this root; None while there is none."""
    try:
        host = read_host(root)
        driver, found = find_driver(host), find_libraries(host, ["libnvidia-ml.so"])
    except (DriverNotFound, LdCacheUnreadable, OSError):
        return None
    own = (one.path for one in found.components if one.elf.is_64_bit and driver.owns(one))
    return next(own, None)


def find_driver(host: Host) -> Driver:
    """Find the driver whose libcuda libcuda.so.1 opens. Raises DriverNotFound."""
    found = [c for c in find_libraries(host, ["libcuda.so"]).components if c.elf.is_64_bit]
    if not found:
        raise DriverNotFound(host.root, "its ld.so.cache names no 64-bit libcuda.so that exists")
    versions = {component.path: version(component.path) for component in found}
    opened = (host.resolve(entry.path) for entry in host.cache if entry.name == "libcuda.so.1")
    preferred = next((path for path in opened if path in versions), None)
    if preferred is None:
        # Without such a name in the cache: the newest, 570.86 before 555.58.02.
        numbers = {path: (number or "0").split(".") for path, number in versions.items()}
        preferred = max(versions, key=lambda path: [int(part) for part in numbers[path]])
    cuda = next(component for component in found if component.path == preferred)
    chosen = versions[preferred]
    if chosen is None:
        raise DriverNotFound(host.root, f"{preferred.name} has no driver version in its name")
    others = {other for other in versions.values() if other is not None} - {chosen}
    return Driver(chosen, cuda, frozenset(others))


def version(path: Path) -> str | None:
    """Return `555.58.02` of `libcuda.so.555.58.02`."""
    match = _VERSIONED.fullmatch(path.name)
    return match[1] if match else None
