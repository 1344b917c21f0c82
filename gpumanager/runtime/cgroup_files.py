"""The cgroup files of this node: of a process, and the processes of a container.

`proc` is read as this process sees it. Where it shows another pid namespace or cgroup namespace
than the host's, less is known, and nothing is wrong.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumanager.ids import PodUID
from gpumanager.runtime.cgroup import (
    UNIFIED,
    CgroupDriver,
    CgroupMount,
    CgroupVersion,
    Membership,
    Place,
    directory,
    memberships,
    parse_mounts,
    pods,
    version,
)

DEEPEST: Final = 8
"""How far below a mount a pod's cgroup is looked for; kind has it at the fifth level."""

_CHUNK: Final = 1 << 16


def read_places(pid: int | str, proc: str = "/proc") -> str:
    """Read /proc/<pid>/cgroup, empty where there is none. Each HELLO calls it: hence no pathlib."""
    try:
        descriptor = os.open(f"{proc}/{pid}/cgroup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _CHUNK).decode(errors="replace")
    except OSError:  # it died meanwhile
        return ""
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class CgroupFiles:
    """The hierarchies that are mounted here. around: the pods that we run in ourselves."""

    mounts: tuple[CgroupMount, ...]
    around: frozenset[PodUID]

    @classmethod
    def here(cls, proc: str = "/proc") -> "CgroupFiles":
        text = ""
        with suppress(OSError):
            text = Path(proc, "self/mountinfo").read_text(errors="replace")
        return cls(parse_mounts(text), pods(read_places("self", proc)))

    @property
    def version(self) -> CgroupVersion | None:
        return version(self.mounts)

    def driver(self) -> CgroupDriver | None:
        """Return the cgroup driver of the pods; None where no pod runs, or none can be seen."""
        return next((one.driver for one in self.members()), None)

    def members(self) -> Iterator[Membership]:
        """Yield pods that have a cgroup, and the containers in them. Reads many directories.

        Of one hierarchy: where there are several, all of them have the same pods, but for v2's
        beside v1, where a kubelet leaves what has ended.
        """
        memory = [one for one in self.mounts if "memory" in one.options]
        systemd = [one for one in self.mounts if "name=systemd" in one.options]
        for mount in (memory or systemd or self.mounts)[:1]:
            yield from self._below(mount, mount.root.rstrip("/"), DEEPEST)

    def processes(self, membership: Membership) -> tuple[int, ...]:
        """Return the pids in its cgroup and in those below it, ascending."""
        top = directory(self.mounts, membership.place)
        found = set[int]()
        for path, _, _ in os.walk(top or ""):
            # A pid outside of our namespace is 0; a threaded cgroup of v2 lists none.
            with suppress(OSError):
                text = Path(path, "cgroup.procs").read_text()
                found.update(int(line) for line in text.split() if line != "0")
        return tuple(sorted(found))

    def _below(self, mount: CgroupMount, path: str, depth: int) -> Iterator[Membership]:
        place = Place(UNIFIED if mount.unified else mount.options, path or "/")
        found = [one for one in memberships(place) if one.pod_uid not in self.around]
        if found:
            yield found[0]
        if depth and not (found and found[0].container_id):
            names = list[str]()
            with suppress(OSError), os.scandir(directory((mount,), place) or "") as entries:
                names = sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
            for name in names:
                yield from self._below(mount, f"{path}/{name}", depth - 1)
