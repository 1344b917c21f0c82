"""What can go wrong between the driver on the host and the directories given to containers."""

from pathlib import Path

from gpumanager.errors import GpuManagerError, InputError


class LdCacheUnreadable(InputError):
    """`ld.so.cache` is missing, truncated or no cache at all."""


class DriverNotFound(GpuManagerError):
    """No usable NVIDIA driver under this root."""

    def __init__(self, root: Path, cause: str) -> None:
        super().__init__(
            f"no usable NVIDIA driver under {root}: {cause}; "
            "install the driver, run ldconfig there, or name the root it lies in"
        )
        self.cause = cause


class ShimUnusable(GpuManagerError):
    """A shim cannot stand in for the driver's library: not built, or for another machine."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"shim {path}: {cause}")


class SymbolsUnreadable(GpuManagerError):
    """Which functions a library exports cannot be told."""

    def __init__(self, library: Path, cause: str) -> None:
        super().__init__(f"the functions that {library} exports cannot be read: {cause}")


class MirrorFailed(GpuManagerError):
    """The driver directory could not be written; the published one is as it was."""

    def __init__(self, base: Path, cause: str) -> None:
        super().__init__(f"cannot publish the driver in {base}: {cause}")
