"""Publish planned driver directories so that no container ever sees half of one.

    <base>/nvidia                      -> nvidia-4f0c…      switched atomically; this is mounted
    <base>/nvidia-4f0c…/bin lib lib64                       named by its content, never changed
    <base>/nvidia-81aa…                                     an earlier one, maybe still mounted
    <base>/nvidia.aside-03d1…                               found in the way: damaged, or made by
                                                            the original, which had no link here
    <base>/.nvidia-77b2…                                    being built; swept up after a crash

A directory is built beside its place and renamed into it. Publishing the same again changes
nothing. One process at a time, by a lock that the kernel drops with its holder.
"""

import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from gpumanager.names import CONTAINER_DRIVER
from gpumanager.volume.errors import MirrorFailed
from gpumanager.volume.layout import DIRECTORIES, File, Link, Plan, digest
from gpumanager.volume.values import DriverVolumes

LOCK_NAME: Final = ".lock"
LOCK_SECONDS: Final = 60.0
"""How long to wait for another process that publishes; a driver is copied in a few seconds."""


class Disk:
    """The changes made to a disk, one method each: where tests stop the mirror after any step.

    Directories and copies end up readable by all whatever the agent's umask: the users of
    containers are not root.
    """

    def make_directory(self, path: Path) -> None:
        path.mkdir()
        path.chmod(0o755)

    def place(self, file: File, target: Path) -> None:
        """Put the file there: a hard link where the file system allows it, else a copy."""
        if file.content is not None:
            self._write(BytesIO(file.content), file.source, target)
            return
        try:
            os.link(file.source, target)
        except OSError:
            with file.source.open("rb") as origin:
                self._write(origin, file.source, target)

    def _write(self, content: BinaryIO, source: Path, target: Path) -> None:
        with target.open("xb") as copy:
            shutil.copyfileobj(content, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        shutil.copymode(source, target)

    def link(self, target: str, path: Path) -> None:
        path.symlink_to(target)

    def sync(self, directory: Path) -> None:
        """Make the names in a directory survive a power cut."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Atomic; replaces a symbolic link that stands there."""
        path.rename(target)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)


DISK: Final = Disk()


def mirror(plan: Plan, base: Path, name: str, disk: Disk = DISK) -> Path:
    """Publish the plan as `<base>/<name>`; returns the directory that this now leads to.

    Raises MirrorFailed; what was published before is then still in place.
    """
    target = base / f"{name}-{digest(plan)}"
    with _owned(base):
        _sweep(base, name, disk)
        if not is_complete(plan, target):
            _build(plan, target, name, disk)
        _switch(base / name, target, disk)
    return target


def is_complete(plan: Plan, target: Path) -> bool:
    """Return whether everything planned is there: files by size, links by where they lead."""
    for entry in plan:
        path = target / entry.path
        if isinstance(entry, Link):
            same = path.is_symlink() and str(path.readlink()) == entry.target
        else:
            same = path.is_file() and not path.is_symlink() and path.stat().st_size == entry.size
        if not same:
            return False
    return all((target / part).is_dir() for part in DIRECTORIES)


def prune(base: Path, name: str, keep: Collection[Path], disk: Disk = DISK) -> tuple[Path, ...]:
    """Remove directories of this volume that are neither current nor in `keep`; returns them.

    keep: directories that containers still mount. Raises MirrorFailed.
    """
    pattern = re.compile(rf"{re.escape(name)}(-[0-9a-f]{{16}}|\.aside-[0-9a-f]{{8}})")
    with _owned(base):
        _sweep(base, name, disk)
        wanted = {path.resolve() for path in (*keep, base / name)}
        found = [path for path in sorted(base.iterdir()) if pattern.fullmatch(path.name)]
        doomed = tuple(path for path in found if path.resolve() not in wanted)
        for path in doomed:
            hidden = _fresh(base, f".{name}-")
            disk.rename(path, hidden)
            disk.remove_tree(hidden)
    return doomed


@contextmanager
def _owned(base: Path) -> Iterator[None]:
    """Hold the lock of `base`; an OSError inside becomes MirrorFailed."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        with (base / LOCK_NAME).open("a") as lock:
            _acquire(lock.fileno(), base)
            yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise MirrorFailed(base, f"{error.strerror}{where}") from error


def _acquire(lock: int, base: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise MirrorFailed(
                    base, "another process has been writing there for too long"
                ) from error
            time.sleep(0.05)
        else:
            return


def _sweep(base: Path, name: str, disk: Disk) -> None:
    """Remove what a crash left: by the lock, no other process is building now."""
    pattern = re.compile(rf"\.{re.escape(name)}-[0-9a-f]{{8}}")
    for path in base.iterdir():
        if not pattern.fullmatch(path.name):
            continue
        if path.is_symlink():
            path.unlink()
        else:
            disk.remove_tree(path)


def _build(plan: Plan, target: Path, name: str, disk: Disk) -> None:
    hidden = _fresh(target.parent, f".{name}-")
    try:
        disk.make_directory(hidden)
        for part in DIRECTORIES:
            disk.make_directory(hidden / part)
        for entry in plan:
            if isinstance(entry, Link):
                disk.link(entry.target, hidden / entry.path)
            else:
                disk.place(entry, hidden / entry.path)
        for part in (*DIRECTORIES, ""):
            disk.sync(hidden / part)
    except OSError:
        _sweep(target.parent, name, disk)
        raise
    if os.path.lexists(target):
        _set_aside(target, name, disk)
    disk.rename(hidden, target)
    disk.sync(target.parent)


def _switch(link: Path, target: Path, disk: Disk) -> None:
    if link.is_symlink() and str(link.readlink()) == target.name:
        return
    hidden = _fresh(link.parent, f".{link.name}-")
    disk.link(target.name, hidden)
    if link.exists() and not link.is_symlink():
        _set_aside(link, link.name, disk)
    disk.rename(hidden, link)
    disk.sync(link.parent)


def _set_aside(path: Path, name: str, disk: Disk) -> None:
    """Rename it, but keep it: containers may have it mounted."""
    disk.rename(path, _fresh(path.parent, f"{name}.aside-"))


def _fresh(base: Path, prefix: str) -> Path:
    return base / f"{prefix}{secrets.token_hex(4)}"


PROC: Final = Path("/proc")
_SHORT: Final = ("",) * 5
"""For a line that is cut off."""

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def prune_unused(
    volumes: DriverVolumes, pids: Iterable[int], proc: Path = PROC
) -> tuple[Path, ...]:
    """Remove earlier driver directories; returns those removed. Raises MirrorFailed.

    pids: of a process of each container that has a driver mounted; 0: not known.
    """
    names = mounted(pids, proc)
    if names is None:
        return ()
    removed: list[Path] = []
    for volume in (volumes.shared, volumes.compute, volumes.whole):
        keep = [volume.parent / name for name in names]
        removed += prune(volume.parent, volume.name, keep)
    return tuple(removed)


def mounted(pids: Iterable[int], proc: Path = PROC) -> frozenset[str] | None:
    """Return the names of the directories; None if one cannot be read."""
    found: set[str] = set()
    for pid in pids:
        try:
            table = (proc / str(pid) / "mountinfo").read_text()
        except OSError:
            return None
        names = set[str]()
        for line in table.splitlines():
            _, _, _, root, point, *_ = (*line.split(" "), *_SHORT)
            if _plain(point) == str(CONTAINER_DRIVER):
                names.add(Path(_plain(root)).name)
        if not names:
            return None
        found |= names
    return frozenset(found)


def _plain(text: str) -> str:
    """Return the text with its octal numbers decoded: blanks and backslashes are written so."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
