"""What a container sees: the host's files, a /dev of its own, and the mounts it was given.

A mount point that the host does not have is made without touching the host: a tmpfs goes over the
nearest directory that exists, everything in that directory is shown again in the tmpfs, and the
missing names are made beside it. Where the nearest is `/`, the tmpfs becomes the root directory.
"""

import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final, Self

from gpumanager.sim.container import kernel
from gpumanager.sim.container.values import BindMount

HOST_DEVICES: Final = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"),
    *("fd", "stdin", "stdout", "stderr"),
)
"""What every container has in /dev, as runtimes give it; nothing there speaks to a GPU."""


NEW_ROOT: Final = Path("/dev/.root")
"""In our own /dev, so that the host does not notice."""


class ContainerFiles:
    """Builds the view, in the mount namespace of this process; used once."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        """Devices (st_dev) of our own tmpfs, in which names can be made."""

    def own_dev(self, devices: tuple[BindMount, ...]) -> None:
        """Make a /dev with the usual nodes and only the granted devices."""
        with _Beneath(Path("/dev")) as host:
            kernel.tmpfs("/dev", 0o755)
            for name in HOST_DEVICES:
                host.show(name, Path("/dev"))
        self._own.add(Path("/dev").stat().st_dev)
        for device in devices:
            self.show(device)

    def show(self, mount: BindMount) -> None:
        """Bind one path of the host, making its mount point where there is none."""
        target = Path(os.path.normpath(mount.container))
        source = Path(mount.host)
        if not source.exists():
            raise FileNotFoundError(f"the host has no {source} to be mounted at {target}")
        if not target.exists():
            nearest = next(path for path in target.parents if path.is_dir())
            if nearest.stat().st_dev not in self._own:
                self._cover(nearest.resolve())
            target.parent.mkdir(parents=True, exist_ok=True)
            _mount_point(target, directory=source.is_dir())
        kernel.bind(str(source), str(target), read_only=mount.read_only)

    def _cover(self, directory: Path) -> None:
        """Mount a tmpfs over `directory`, and show everything that was there in it again."""
        mode = stat.S_IMODE(directory.stat().st_mode)
        place = directory
        if directory == Path("/"):  # over which nothing can be mounted: make another one
            place = NEW_ROOT
            place.mkdir()
        with _Beneath(directory) as host:
            kernel.tmpfs(str(place), mode)
            for name in host.names:
                host.show(name, place)
        if place == NEW_ROOT:
            os.chroot(place)
            os.chdir("/")
        self._own.add(directory.stat().st_dev)


class _Beneath:
    """A directory as it was before something was mounted over it, kept by a descriptor."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._path = Path(f"/proc/self/fd/{self._descriptor}")
        self.names = os.listdir(self._descriptor)  # noqa: PTH208 - a descriptor has no path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def show(self, name: str, directory: Path) -> None:
        """Show one entry again in `directory`; what the host does not have is left out."""
        source, target = self._path / name, directory / name
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            _mount_point(target, directory=source.is_dir())
            kernel.bind(str(source), str(target))


def _mount_point(path: Path, *, directory: bool) -> None:
    if directory:
        path.mkdir()
    else:
        path.touch()


def inside(path: str, root: str) -> bool:
    """Return whether an absolute path of the container lies at or below another."""
    return PurePosixPath(os.path.normpath(path)).is_relative_to(root)
