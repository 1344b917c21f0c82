"""What the volume manager publishes: driver directories to mount into containers."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DriverVolumes:
    """Host directories, each laid out `bin/ lib/ lib64/`, to be mounted at /usr/local/nvidia.

    shared: libcuda and libnvidia-ml are the shims. compute: the same without OpenGL, EGL and
    Vulkan. whole: all libraries are the driver's own.
    version: the driver's, for example `555.58.02`. warnings: what was left out of them, and why.
    over_compat: the shared libraries are to be seen where CUDA images have a libcuda of their own.
    compat32: 32-bit programs are to find theirs too.
    """

    shared: Path
    compute: Path
    whole: Path
    version: str
    warnings: tuple[str, ...] = ()
    over_compat: bool = False
    compat32: bool = False
