"""GPU time outside of turns: who takes it is told to the arbiter, and charged to its container.

Which process takes time is seen in NVML's samples. One that has no slot in a container that takes
turns is foreign while it works (`gpumanager.compute.foreign`): the arbiter knows then that a drain
shows nothing. Its time goes to the container of its cgroup, or to no one. A container for which
samples show much more than its turns were charged is charged for the rest (`compute.audit`), and
nobody else ever is.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gpumanager.compute.audit import Audit, Payer
from gpumanager.compute.foreign import foreign
from gpumanager.gpu.usage.samples import GpuUtilization, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from gpumanager.virtual.allocation import ServedAllocation
from gpumanager.virtual.peers import PeerCheck
from gpumanager.virtual.processes import find
from gpumanager.virtual.turns import Turns
from gpumanager.virtual.values import AllocationID

log = logging.getLogger(__name__)

LOOKUPS: Final = 64
"""Processes of an answer whose container is looked up."""


class OutsideUse:
    """Of all GPUs on which containers take turns. peers: knows the containers of processes."""

    def __init__(self, turns: Turns, peers: PeerCheck | None = None) -> None:
        self._turns = turns
        self._peers = peers
        self._until: dict[GpuUUID, int] = {}
        self._audits: dict[GpuUUID, Audit] = {}
        self._noticed: set[tuple[AllocationID, GpuUUID]] = set()

    def look(
        self, now_ns: int, takers: Collection[ServedAllocation], answers: UtilizationByGpu
    ) -> None:
        """takers: the allocations that take turns. answers: as `VirtualManager.share_now`."""
        for gpu, answer in answers.items():
            if on_gpu := [one for one in takers if gpu in one.limited_gpus]:
                self._enter(now_ns, gpu, answer, on_gpu)
        for gpu in [gpu for gpu, until in self._until.items() if until <= now_ns]:
            del self._until[gpu]
            self._turns.foreign(gpu, foreign=False)

    def _enter(
        self, now: int, gpu: GpuUUID, answer: GpuUtilization, takers: Sequence[ServedAllocation]
    ) -> None:
        pids = {one.allocation: {each.pid for each in one.processes} for one in takers}
        inside = frozenset[int]().union(*pids.values())
        ends = foreign(answer.samples or (), now, inside)
        if ends:
            if gpu not in self._until:
                self._turns.foreign(gpu, foreign=True)
            self._until[gpu] = max(*ends.values(), self._until.get(gpu, 0))
        for pid, owner in self._owners(sorted(ends)[:LOOKUPS], pids.keys()).items():
            pids[owner].add(pid)
        self._charge(gpu, answer, takers, pids)

    def _owners(
        self, pids: Sequence[int], allocations: Collection[AllocationID]
    ) -> Mapping[int, AllocationID]:
        """Of those processes whose container is known."""
        processes = [one for one in map(find, pids) if one is not None and self._peers]
        owners = {
            one.pid: self._peers.owner(allocations, one) if self._peers else None
            for one in processes
        }
        return {pid: owner for pid, owner in owners.items() if owner is not None}

    def _charge(
        self,
        gpu: GpuUUID,
        answer: GpuUtilization,
        takers: Sequence[ServedAllocation],
        pids: Mapping[AllocationID, Collection[int]],
    ) -> None:
        devices = {(one.allocation, device): one for one in takers for device in one.places(gpu)}
        payers = [
            Payer(holder, frozenset(pids[one.allocation]), one.turns_charged(holder[1]))
            for holder, one in devices.items()
        ]
        audit = self._audits.setdefault(gpu, Audit())
        for (name, device), debt in audit.enter(answer, payers).items():
            devices[AllocationID(name), device].charge_turns(device, max(0, debt))
            if (AllocationID(name), gpu) not in self._noticed:
                self._noticed.add((AllocationID(name), gpu))
                log.warning(
                    "allocation %s: NVML shows that it uses more of its GPU %d than its turns: the "
                    "excess over a tenth of the time is charged too",
                    *(name, device),
                )
