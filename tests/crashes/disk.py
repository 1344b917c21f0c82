"""A disk that fails at its n-th change: the process ends, the power goes, or the change is refused.

Every change below `root` is one step: Python announces those that name a path (audit events), and
those by a descriptor are wrapped. The agent runs in this process, so "ends" means that this step
and all after it raise `AgentDied`, and nothing more reaches the disk.

When the power goes, what was not synced is lost in the way file systems lose it: changes of
directories from some moment on, since the last sync, have not happened; bytes of files that were
not synced are there, missing or zero, by sectors and pages. A sync of any file makes all earlier
changes of directories last, as the journal of ext4 and XFS does.
"""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

PAGE: Final = 4096
SECTOR: Final = 512


class AgentDied(BaseException):
    """The agent ends here, as by SIGKILL."""


class Fault(Enum):
    """What happens instead of a step."""

    DEATH = "death"
    POWER = "power loss"
    ERROR = "error"


@dataclass
class CrashingDisk:
    """One node's. fault: at the step that `left` counts down to; None for never.

    met: the faults, and what was to be changed when they came.
    """

    root: Path
    random: Random
    fault: Fault | None = None
    left: int = 0
    steps: int = 0
    dead: bool = False
    met: list[tuple[Fault, str]] = field(default_factory=list)
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _unsynced: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    """By inode: where something was written, and what was there before."""
    asleep: bool = True
    """Whether nothing counts: what the test does itself."""

    def arm(self, fault: Fault | None, left: int) -> None:
        self.fault, self.left, self.dead = fault, left, False

    def step(self, what: str) -> None:
        if self.dead:
            raise AgentDied
        self.steps += 1
        if self.fault is None:
            return
        if self.left:
            self.left -= 1
            return
        fault, self.fault = self.fault, None
        self.met.append((fault, what))
        if fault is Fault.ERROR:
            raise OSError(28, "No space left on device")
        self.dead = True
        raise AgentDied

    @contextmanager
    def observed(self) -> Iterator[None]:
        """From now on, where it is not asleep."""
        global _ACTIVE  # noqa: PLW0603 - an audit hook cannot be taken back, so there is one
        with _wrapped():
            _ACTIVE = self
            try:
                yield
            finally:
                _ACTIVE = None

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.asleep or event not in _EVENTS:
            return
        path = _path_of(event, args)
        if path is None or not path.is_relative_to(self.root):
            return
        if event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        self.asleep = True
        try:
            self.step(f"{event} {_kind(path)}")
            self._remember(event, path, args)
        finally:
            self.asleep = False

    def written(self, descriptor: int, offset: int, size: int) -> None:
        """Before it is written."""
        inode = os.fstat(descriptor).st_ino
        with suppress(OSError):
            before = Path(f"/proc/self/fd/{descriptor}").read_bytes()[offset : offset + size]
            self._unsynced.setdefault(inode, []).append((offset, before.ljust(size, b"\0")))

    def synced(self, descriptor: int) -> None:
        self._undo.clear()
        self._unsynced.pop(os.fstat(descriptor).st_ino, None)

    def lose_power(self) -> None:
        """What was not synced is lost, some of it."""
        keep = self.random.randint(0, len(self._undo))
        while len(self._undo) > keep:
            self._undo.pop()()
        for path in sorted(self.root.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            for offset, before in self._unsynced.get(path.stat().st_ino, ()):
                self._tear(path, offset, before)
        self._undo.clear()
        self._unsynced.clear()

    def _tear(self, path: Path, offset: int, before: bytes) -> None:
        content = bytearray(path.read_bytes())
        match self.random.randrange(4):
            case 0:  # all of it has reached the disk
                return
            case 1:  # sectors in any order
                for at in range(0, len(before), SECTOR):
                    if self.random.random() < 0.5:
                        end = min(at + SECTOR, len(before))
                        content[offset + at : offset + end] = before[at:end]
            case 2:  # nothing of it
                content[offset : offset + len(before)] = before
            case _ if not any(before):  # the file is shorter: its size was not written either
                pages = self.random.randint(0, len(before) // PAGE)
                del content[offset + pages * PAGE :]
        path.write_bytes(bytes(content))

    def _remember(self, event: str, path: Path, args: tuple[Any, ...]) -> None:
        match event:
            case "open" if not path.exists():
                self._undo.append(lambda: path.unlink(missing_ok=True))
            case "open" if args[2] & os.O_TRUNC:
                self._undo.append(partial(_back, self._kept(path), path))
            case "os.mkdir":
                if not path.exists():
                    self._undo.append(lambda: shutil.rmtree(path, ignore_errors=True))
            case "socket.bind":
                self._undo.append(lambda: path.unlink(missing_ok=True))
            case "os.rename":
                target = _resolved(args[1], args[3])
                replaced = self._kept(target)
                self._undo.append(partial(_swap_back, target, path, replaced))
            case "os.remove":
                self._undo.append(partial(_back, self._kept(path), path))
            case "os.rmdir":
                mode = stat.S_IMODE(path.stat().st_mode)
                self._undo.append(lambda: path.mkdir(mode, exist_ok=True))
            case _:
                pass

    def _kept(self, path: Path) -> Path:
        """A second name for what is to be removed or replaced, if there is anything."""
        kept = self.root.parent / f".kept-{self.root.name}-{self.steps}"
        with suppress(OSError):
            os.link(path, kept, follow_symlinks=False)
        return kept


def _swap_back(target: Path, path: Path, replaced: Path) -> None:
    _back(target, path)
    _back(replaced, target)


def _back(source: Path, target: Path) -> None:
    with suppress(OSError):
        source.replace(target)


_EVENTS: Final = {
    "open",
    "os.chmod",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.truncate",
    "socket.bind",
}
_ACTIVE: CrashingDisk | None = None


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _ACTIVE is not None:
        _ACTIVE.audit(event, args)


@cache
def _listen() -> None:
    sys.addaudithook(_hook)


@contextmanager
def _wrapped() -> Iterator[None]:
    """What is done by descriptors, which no audit event tells of."""
    _listen()
    pwrite, fsync, fdatasync, write_text = os.pwrite, os.fsync, os.fdatasync, Path.write_text

    def torn_pwrite(descriptor: int, content: Any, offset: int) -> int:
        disk = _of(descriptor)
        if disk is None:
            return pwrite(descriptor, content, offset)
        content = bytes(content)
        disk.written(descriptor, offset, len(content))
        half = len(content) // 2
        pwrite(descriptor, content[:half], offset)
        disk.step(f"write {_kind(_named(descriptor))}")
        return half + pwrite(descriptor, content[half:], offset + half)

    def torn_write_text(path: Path, text: str, *rest: Any, **more: Any) -> int:
        disk = _ACTIVE
        if disk is None or disk.asleep or not path.is_relative_to(disk.root):
            return write_text(path, text, *rest, **more)
        with path.open("w") as file:
            disk.written(file.fileno(), 0, len(text))
            file.write(text[: len(text) // 2])
            file.flush()
            disk.step(f"write {_kind(path)}")
            return len(text) // 2 + file.write(text[len(text) // 2 :])

    def counted_sync(sync: Callable[[int], None], descriptor: int) -> None:
        disk = _of(descriptor)
        if disk is None:
            sync(descriptor)
            return
        disk.step(f"sync {_kind(_named(descriptor))}")
        disk.synced(descriptor)

    with (
        patch.object(os, "pwrite", torn_pwrite),
        patch.object(os, "fsync", lambda what: counted_sync(fsync, _number(what))),
        patch.object(os, "fdatasync", lambda what: counted_sync(fdatasync, _number(what))),
        patch.object(Path, "write_text", torn_write_text),
    ):
        yield


def _number(descriptor: Any) -> int:
    return descriptor if isinstance(descriptor, int) else int(descriptor.fileno())


def _of(descriptor: int) -> CrashingDisk | None:
    disk = _ACTIVE
    watched = disk is not None and not disk.asleep and _named(descriptor).is_relative_to(disk.root)
    return disk if watched else None


def _named(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - its name, no path


def _path_of(event: str, args: tuple[Any, ...]) -> Path | None:
    """Of what is changed; None where no path is named."""
    if event == "socket.bind":
        return Path(args[1]) if isinstance(args[1], str) else None
    directories = {"os.mkdir": 2, "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.chmod": 2}
    directory = args[directories[event]] if event in directories else -1
    return _resolved(args[0], directory)


def _resolved(name: Any, directory: Any) -> Path:
    if isinstance(name, int):
        return _named(name)
    path = Path(os.fsdecode(name))
    if not path.is_absolute() and isinstance(directory, int) and directory >= 0:
        return _named(directory) / path
    return path


def _kind(path: Path) -> str:
    """What it is, the same for all claims."""
    name = path.name
    if name.startswith("gpu.tencent.com-claim_"):
        return "CDI file" + (" (half)" if name.endswith(".tmp") else "")
    return "directory of an allocation" if path.parent.name == "alloc" else name
