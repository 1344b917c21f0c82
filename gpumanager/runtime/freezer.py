"""The cgroup freezer of v2 and of v1, by the files of the containers' cgroups.

v2 has `cgroup.freeze` in each cgroup, and `cgroup.events` says when all processes have stopped. v1
has a hierarchy of its own, whose `freezer.state` is FREEZING until then. Beside v1, v2 is without
containers, so that v1's freezer comes first. They are written where the node's cgroups are mounted
writable.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.pausing import Cgroup
from gpumanager.limits.processes import Process, find
from gpumanager.runtime.cgroup import (
    UNIFIED,
    CgroupFiles,
    Place,
    directory,
    memberships,
    parse_places,
    read_places,
)
from gpumanager.runtime.peers import Owners, as_in_cgroups

READ_ONLY: Final = (
    "the node's cgroups are mounted read-only or not at all; mount its /sys/fs/cgroup writable"
)

V1: Final = "freezer"

_FROZEN_V2: Final = "frozen 1"


class CgroupFreezer:
    """Freezes containers of pods that an allocation is for, and no others: the pod of a cgroup is
    looked at, so that a pid which means a process of the host by now harms none. terminating:
    whether a pod is about to end. Implements `limits.pausing.Freezer`."""

    def __init__(
        self,
        files: CgroupFiles,
        owners: Owners,
        terminating: Callable[[PodUID], bool] = lambda _: False,
        proc: str = "/proc",
    ) -> None:
        self._mounts = tuple(one for one in files.mounts if one.unified or V1 in one.options)
        self._owners = owners
        self._terminating = terminating
        self._proc = proc

    @property
    def writable(self) -> bool:
        """Return whether the node's cgroups are mounted so that containers can be frozen."""
        return any(not os.statvfs(one.point).f_flag & os.ST_RDONLY for one in self._mounts)

    def container(self, allocation: AllocationID, process: Process) -> Cgroup | None:
        owners = set(map(as_in_cgroups, self._owners(allocation) or ()))
        text = read_places(process.pid, self._proc)
        if not owners or find(process.pid) != process:
            return None
        for place in sorted(parse_places(text), key=lambda one: one.controllers == UNIFIED):
            if place.controllers != UNIFIED and V1 not in place.controllers:
                continue
            for one in memberships(place):
                if one.container_id and one.pod_uid in owners:
                    return Cgroup(f"{','.join(sorted(place.controllers))}:{one.place.path}")
        return None

    def terminates(self, cgroup: Cgroup) -> bool:
        return any(self._terminating(one.pod_uid) for one in memberships(_place(cgroup)))

    def freeze(self, cgroup: Cgroup) -> None:
        self._write(cgroup, frozen=True)

    def thaw(self, cgroup: Cgroup) -> None:
        self._write(cgroup, frozen=False)

    def is_frozen(self, cgroup: Cgroup) -> bool:
        place = _place(cgroup)
        with suppress(OSError):
            if place.controllers == UNIFIED:
                return _FROZEN_V2 in self._file(place, "cgroup.events").read_text().splitlines()
            return self._file(place, "freezer.state").read_text().strip() == "FROZEN"
        return False

    def _write(self, cgroup: Cgroup, *, frozen: bool) -> None:
        place = _place(cgroup)
        if place.controllers == UNIFIED:
            file, word = self._file(place, "cgroup.freeze"), "01"[frozen]
        else:
            file, word = self._file(place, "freezer.state"), "FROZEN" if frozen else "THAWED"
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)  # not made: that freezes nothing
        try:
            os.write(descriptor, word.encode())
        finally:
            os.close(descriptor)

    def _file(self, place: Place, name: str) -> Path:
        """Return the file, where it can be written if anywhere. Raises FileNotFoundError."""
        paths = (directory((mount,), place) for mount in self._mounts)
        existing = [file for path in paths if path and (file := Path(path, name)).exists()]
        if not existing:
            raise FileNotFoundError(f"no mount shows cgroup {place.path}")
        return next((file for file in existing if os.access(file, os.W_OK)), existing[0])


def _place(cgroup: Cgroup) -> Place:
    controllers, _, path = cgroup.partition(":")
    return Place(frozenset(controllers.split(",")) if controllers else UNIFIED, path)
