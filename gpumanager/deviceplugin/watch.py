"""Noticing that the kubelet restarted.

A starting kubelet deletes every socket in its directory and makes its own anew. The new one may
have the inode of the old, so its times are compared too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PERIOD: Final = 0.25
"""Seconds between two looks."""

Identity = tuple[int, int, int]
"""Inode, modification and change time of a file."""


def identity(path: Path) -> Identity | None:
    """Which file lies at `path` now; None if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True, slots=True)
class Sockets:
    """The kubelet's socket and ours, as they are at one moment."""

    kubelet: Identity | None
    own: tuple[Identity | None, ...]

    @classmethod
    def look(cls, kubelet: Path, own: tuple[Path, ...]) -> "Sockets":
        return cls(identity(kubelet), tuple(identity(path) for path in own))

    def stale(self, now: "Sockets") -> bool:
        """True if, since `self`, the kubelet has started anew or our sockets were removed.

        False while there is no kubelet: it would delete what we make.
        """
        return now.kubelet is not None and now != self
