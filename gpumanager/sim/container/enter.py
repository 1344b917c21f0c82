"""The child side of a container's start: `python -m gpumanager.sim.container.enter [FD]`.

Reads the spec from standard input, makes the namespace, applies the spec, says on the socket FD
which namespace it is in, waits for one byte there (so that the parent holds the namespace before
anything runs in it), and becomes the command. Without FD it tries only whether this kernel allows
it.

The container sees the host's files, a /dev of its own, and the mounts it was given. A mount point
that the host does not have is made without touching the host: a tmpfs goes over the nearest
directory that exists, everything in that directory is shown again in the tmpfs, and the missing
names are made beside it. Where the nearest is `/`, the tmpfs becomes the root directory.
"""

import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Never

from gpumanager.sim.container import kernel
from gpumanager.sim.container.values import BindMount, ContainerSpec

NOT_STARTED: Final = 126
NOT_FOUND: Final = 127
"""Exit statuses of shells: the command cannot be run, the command does not exist."""
HOST_DEVICES: Final = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"),
    *("fd", "stdin", "stdout", "stderr"),
)
"""What every container has in /dev, as runtimes give it; nothing there speaks to a GPU."""
NEW_ROOT: Final = Path("/dev/.root")
"""In our own /dev, so that the host does not notice."""


def apply(spec: ContainerSpec) -> None:
    """Move this process into a namespace that looks as the spec says."""
    kernel.own_mount_namespace()
    kernel.die_with_parent()
    dev = Path("/dev")
    _cover(dev, dev, 0o755, HOST_DEVICES)
    own = {dev.stat().st_dev}
    for mount in (*spec.devices, *spec.mounts):
        _show(mount, own)


def _show(mount: BindMount, own: set[int]) -> None:
    """Bind one path of the host, making its mount point where there is none. own: the devices
    (st_dev) of our tmpfs, in which names can be made."""
    target, source = Path(os.path.normpath(mount.container)), Path(mount.host)
    if not source.exists():
        raise FileNotFoundError(f"the host has no {source} to be mounted at {target}")
    if not target.exists():
        nearest = next(path for path in target.parents if path.is_dir())
        if nearest.stat().st_dev not in own:
            nearest = nearest.resolve()
            place = nearest
            if nearest == Path("/"):  # over which nothing can be mounted: make another one
                place = NEW_ROOT
                place.mkdir()
            names = [path.name for path in nearest.iterdir()]
            _cover(nearest, place, stat.S_IMODE(nearest.stat().st_mode), names)
            if place == NEW_ROOT:
                os.chroot(place)
                os.chdir("/")
            own.add(nearest.stat().st_dev)
        target.parent.mkdir(parents=True, exist_ok=True)
        _mount_point(target, directory=source.is_dir())
    kernel.bind(str(source), str(target), read_only=mount.read_only)


def _cover(directory: Path, place: Path, mode: int, names: Iterable[str]) -> None:
    """Mount a tmpfs at `place`, and show in it again what is in `directory` by these names."""
    # A descriptor keeps the directory as it was before something was mounted over it.
    beneath = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.tmpfs(str(place), mode)
    for name in names:
        source, target = Path(f"/proc/self/fd/{beneath}", name), place / name
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            _mount_point(target, directory=source.is_dir())
            kernel.bind(str(source), str(target))
    os.close(beneath)


def _mount_point(path: Path, *, directory: bool) -> None:
    if directory:
        path.mkdir()
    else:
        path.touch()


def start(spec: ContainerSpec) -> Never:
    """Become the command; report what keeps it from starting as a runtime does."""
    program = spec.command[0]
    try:
        os.chdir(spec.directory or "/")
        for changed in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(changed, signal.SIG_DFL)
        os.execvpe(program, spec.command, dict(spec.environment))  # noqa: S606 - this is its purpose
    except FileNotFoundError as error:
        if error.filename == spec.directory:
            refuse(f'working directory "{spec.directory}" does not exist', NOT_STARTED)
        where = "no such file" if "/" in program else "executable file not found in $PATH"
        refuse(f'exec: "{program}": {where}', NOT_FOUND)
    except OSError as error:
        refuse(f'exec: "{program}": {error.strerror}', NOT_STARTED)


def refuse(why: str, status: int) -> Never:
    print(why, file=sys.stderr, flush=True)  # noqa: T201 - it is the container's own output
    sys.exit(status)


def main(parent: socket.socket | None) -> None:
    spec = ContainerSpec.read(sys.stdin.read())
    try:
        apply(spec)
    except OSError as error:
        if parent is not None:
            parent.sendall(json.dumps({"error": error.strerror or str(error)}).encode())
        refuse(error.strerror or str(error), NOT_STARTED)
    if parent is None:
        return
    parent.sendall(json.dumps({"mount_namespace": kernel.mount_namespace()}).encode())
    if not parent.recv(1):
        sys.exit(NOT_STARTED)
    parent.close()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    start(spec)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])) if sys.argv[1:] else None)
