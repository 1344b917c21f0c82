"""Cgroups: which pod and container a process is of, and the cgroup files of this node.

The kubelet makes one cgroup for a pod and below it the runtime one for each container, wherever the
kubelet's root is:

    /kubepods/burstable/pod<uid>/<container>                                       cgroupfs
    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<u_i_d>.slice/
        cri-containerd-<container>.scope                                           systemd
    /…/kubepods-burstable-pod<u_i_d>.slice:cri-containerd:<container>              one of each
    /../../podX/<container>                            from within a cgroup namespace (and v2)

Only a UID of the kind Kubernetes makes is taken for one: a cgroup may have any name. `proc` is read
as this process sees it. Where it shows another pid namespace or cgroup namespace than the host's,
less is known, and nothing is wrong. All but `read_places` and `CgroupFiles` is pure.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from gpumanager.ids import ContainerID, PodUID

UNIFIED: Final = frozenset[str]()
"""The controllers of the one hierarchy of cgroup v2, as /proc/<pid>/cgroup has it: none named."""

_UID: Final = r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_POD: Final = re.compile(
    rf"/(?:pod{_UID}|(?:[^/]*-)?kubepods(?:-burstable|-besteffort)?-pod"
    rf"{_UID.replace('uid', 'slice')}\.slice)(?:(?=/|$)|(?=:))"
)
_CONTAINER: Final = re.compile(
    r"[/:](?!crio-conmon-)(?:[a-z][a-z-]*[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)"
)
_GONE: Final = " (deleted)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process is in one hierarchy: a line of /proc/<pid>/cgroup."""

    controllers: frozenset[str]
    path: str


@dataclass(frozen=True, slots=True)
class Membership:
    """The pod, and the container if known, that a cgroup is of.

    place: of the container's own cgroup, or else of the pod's.
    """

    pod_uid: PodUID
    container_id: ContainerID | None
    place: Place


def parse_places(text: str) -> tuple[Place, ...]:
    """Read the lines of /proc/<pid>/cgroup, the best ones first: v2, then v1's memory."""
    rows = (line.split(":", 2) for line in text.splitlines())
    places = [
        Place(frozenset(row[1].split(",")) if row[1] else UNIFIED, row[2].removesuffix(_GONE))
        for row in rows
        if row[2:]
    ]
    places.sort(key=lambda one: (one.controllers != UNIFIED, "memory" not in one.controllers))
    return tuple(places)


def memberships(place: Place) -> Iterator[Membership]:
    """Yield the pods on the way to a cgroup, the outermost first: a pod may run a whole cluster."""
    for match in _POD.finditer(place.path):
        uid = (match["uid"] or match["slice"]).replace("_", "-")
        container = _CONTAINER.match(place.path, match.end())
        end = container.end() if container else match.end()
        yield Membership(
            PodUID(uid),
            ContainerID(container["id"]) if container else None,
            Place(place.controllers, place.path[:end]),
        )


def pods(text: str) -> frozenset[PodUID]:
    """Return all pods that /proc/<pid>/cgroup names."""
    return frozenset(one.pod_uid for place in parse_places(text) for one in memberships(place))


@lru_cache(maxsize=1024)
def identify(text: str, around: frozenset[PodUID] = frozenset()) -> Membership | None:
    """Return the pod of a process, by its /proc/<pid>/cgroup; None where that names no pod.

    around: pods that the reader itself is in. They are not of the reader's own kubelet, or the
    process is as near to the reader as that: nothing is known of it. All processes of a container
    have the same text, so that it is read once for all of them.
    """
    if "pod" not in text:
        return None
    found = (one for place in parse_places(text) for one in memberships(place))
    return next((one for one in found if one.pod_uid not in around), None)


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """A mounted hierarchy. root: the cgroup seen at `point`; options: of its super block."""

    unified: bool
    root: str
    point: str
    options: frozenset[str]

    def shows(self, place: Place) -> bool:
        if place.controllers == UNIFIED:
            return self.unified
        return not self.unified and place.controllers <= self.options


_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def parse_mounts(text: str) -> tuple[CgroupMount, ...]:
    """Read the cgroup hierarchies of a /proc/<pid>/mountinfo."""
    found = list[CgroupMount]()
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        where, what = before.split(), after.split()
        if len(where) > 4 and len(what) > 2 and what[0] in {"cgroup", "cgroup2"}:  # noqa: PLR2004
            options = frozenset(what[2].split(","))
            unified = what[0] == "cgroup2"
            found.append(CgroupMount(unified, _plain(where[3]), _plain(where[4]), options))
    return tuple(found)


def _plain(path: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)


def directory(mounts: Iterable[CgroupMount], place: Place) -> str | None:
    """Return where the files of a cgroup are; None where no mount shows them."""
    names = [name for name in place.path.split("/") if name]
    for mount in mounts:
        root = [name for name in mount.root.split("/") if name]
        below = names[len(root) :]
        # A mount shows the cgroups below its root. Example: in a container, its own.
        if mount.shows(place) and names[: len(root)] == root and ".." not in below:
            return "/".join((mount.point.rstrip("/"), *below))
    return None


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
    def version(self) -> str | None:
        """Return how cgroups are set up: `v1`, `v2`, or `hybrid` for v1's controllers with an empty
        v2 beside them; None where no hierarchy is mounted."""
        kinds = {mount.unified for mount in self.mounts}
        if len(kinds) > 1:
            return "hybrid"
        return next(("v2" if unified else "v1" for unified in kinds), None)

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
