"""What the volume manager publishes: two driver directories to mount into containers."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DriverVolumes:
    """Host directories, each laid out `bin/ lib/ lib64/`, to be mounted at /usr/local/nvidia.

    shared: libcuda and libnvidia-ml are the shims. whole: all libraries are the driver's own.
    version: the driver's, for example `555.58.02`. warnings: what was left out of them, and why.
    """

    shared: Path
    whole: Path
    version: str
    warnings: tuple[str, ...] = ()
