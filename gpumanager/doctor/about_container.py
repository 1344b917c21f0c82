"""Inside of a container that shares a GPU: whether a program finds the library that limits it.

The container's environment leads there. A login by ssh, sudo, cron, su - and a systemd unit start
with another one, and a program with file capabilities ignores LD_LIBRARY_PATH.
"""

import ctypes
from pathlib import Path
from typing import Final

from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import Finding, well, wrong
from gpumanager.names import CONTAINER_DRIVER, CONTAINER_VCUDA, SOCKET_NAME

LIBCUDA: Final = "libcuda.so.1"
SHIM: Final = "libvcuda-shim-"
LIBRARIES: Final = CONTAINER_DRIVER / "lib64"
RECIPE: Final = (
    f"as root: `echo {LIBRARIES} > /etc/ld.so.conf.d/nvidia.conf && ldconfig`, or keep "
    "LD_LIBRARY_PATH of the container (sudo -E; SetEnv of sshd; a line in the crontab)"
)


def is_container() -> bool:
    """Return whether this process runs in a container that shares a GPU."""
    inside = (CONTAINER_VCUDA / SOCKET_NAME, LIBRARIES / LIBCUDA)
    return all(Path(path).exists() for path in inside)


def find_libcuda() -> Path:
    """Return the file behind the libcuda that the loader gives a program; raises OSError where
    none."""
    ctypes.CDLL(LIBCUDA)
    mapped = [line.partition("/") for line in Path("/proc/self/maps").read_text().splitlines()]
    found = [Path(f"{slash}{rest}") for _, slash, rest in mapped]
    names = (SHIM, "libcuda.so")
    return next(path for name in names for path in found if path.name.startswith(name))


def about_container(libcuda: Path | Unseen) -> Finding:
    part = "library path"
    if isinstance(libcuda, Unseen):
        return wrong(f"{libcuda.cause}; it lies in {LIBRARIES}", RECIPE, part)
    if not libcuda.name.startswith(SHIM):
        return wrong(f"{libcuda} is found first, which no limit holds for", RECIPE, part)
    return well(str(libcuda), part)
