"""The machine whose driver is mirrored, seen from outside: its root may be mounted anywhere.

The agent runs in a container with the host's files at some directory, or on a simulated machine
with a root of its own. An absolute symbolic link there means that root, not ours, so links are
followed here step by step and never lead out of it.
"""

import errno
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumanager.volume.errors import LdCacheUnreadable
from gpumanager.volume.ldcache import LdEntry, read_ldcache

LD_CACHE: Final = "/etc/ld.so.cache"
_MOST_LINKS: Final = 40
"""As the kernel's own bound."""


@dataclass(frozen=True, slots=True)
class Host:
    """root: where its `/` is found. cache: its libraries, the preferred first."""

    root: Path
    cache: tuple[LdEntry, ...]

    def resolve(self, path: str) -> Path | None:
        return resolve(self.root, path)


def read_host(root: Path) -> Host:
    """Read the host's `ld.so.cache`. Raises LdCacheUnreadable."""
    cache = resolve(root, LD_CACHE)
    if cache is None:
        cause = "not found; is this the root of a machine on which ldconfig has run?"
        raise LdCacheUnreadable(root / LD_CACHE.lstrip("/"), cause)
    return Host(root, read_ldcache(cache))


def resolve(root: Path, path: str) -> Path | None:
    """Return where `path` of this root really lies; None if it leads nowhere or in circles."""
    pending = deque(path.split("/"))
    found: list[str] = []
    links = 0
    while pending:
        part = pending.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            found = found[:-1]
            continue
        try:
            target = root.joinpath(*found, part).readlink()
        except OSError as error:
            if error.errno != errno.EINVAL:
                return None
            found.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        found = [] if target.is_absolute() else found
        pending.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
    return root.joinpath(*found)
