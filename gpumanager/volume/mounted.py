"""Which driver directories running containers really have mounted, and the removal of all others.

A container is given the stable name of a volume, which leads elsewhere after an upgrade of the
driver; what it got when it started is in its own table of mounts. Where that cannot be read of
a container with a driver mounted, nothing is removed.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpumanager.names import CONTAINER_DRIVER
from gpumanager.volume.mirror import prune
from gpumanager.volume.values import DriverVolumes

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
