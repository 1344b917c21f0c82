"""The check of HELLO: is the caller's pod one that the allocation is for?

The journal names that pod once PreStartContainer has confirmed it; the kernel names the caller;
the caller's cgroup says of which pod that is. Where any of them is silent the caller is let in: a
check that guesses would take working GPUs away.
"""

import logging
from collections.abc import Callable, Collection

from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.processes import Process
from gpumanager.runtime.processes import Containers

log = logging.getLogger(__name__)

Owners = Callable[[AllocationID], Collection[PodUID] | None]
"""The pods that an allocation is for, as far as confirmed: one, or all that share a claim."""


class PodCheck:
    """Counts the callers that it has refused. Implements `limits.socket.peers.PeerCheck`
    and `limits.socket.peers.ProcessOwners`."""

    def __init__(self, containers: Containers, owners: Owners) -> None:
        self._containers = containers
        self._owners = owners
        self._warned = False
        self._logged: set[AllocationID] = set()
        self.refusals = 0
        """Callers refused since the start: of another pod than the socket's."""

    def other_pod(self, allocation: AllocationID, process: Process) -> str | None:
        owners = self._owners(allocation)
        if not owners:
            return None
        found = self._containers.of(process)
        if found is None:
            if not self._warned:
                self._warned = True
                log.info(
                    "the cgroup of process %d names no pod: such callers of vcuda.sock are not "
                    "checked (this is not Kubernetes, or the agent has a cgroup namespace of its "
                    "own)",
                    process.pid,
                )
            return None
        if found.pod_uid in map(as_in_cgroups, owners):
            return None
        self.refusals += 1
        if allocation not in self._logged:  # a process may try for ever
            self._logged.add(allocation)
            log.warning(
                "allocation %s: process %d of pod %s connected to the socket of pod %s and was "
                "rejected (later callers are not logged); check which host directories the "
                "caller's pod mounts",
                allocation,
                process.pid,
                found.pod_uid,
                ", ".join(sorted(owners)),
            )
        return f"this socket is another pod's; the caller is of pod {found.pod_uid}"

    def owner(self, allocations: Collection[AllocationID], process: Process) -> AllocationID | None:
        found = self._containers.of(process)
        if found is None:
            return None
        owners = ((one, map(as_in_cgroups, self._owners(one) or ())) for one in allocations)
        known = [one for one, pods in owners if found.pod_uid in pods]
        return known[0] if len(known) == 1 else None


def as_in_cgroups(uid: PodUID) -> str:
    """systemd has no `-` in the name of a slice, so that `_` and `-` are told apart no more."""
    return uid.replace("_", "-")
