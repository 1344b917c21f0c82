"""GPU time outside of turns: the arbiter is told, and each pays for its own.

NVML's samples show who takes time. A process without a slot in a container that takes turns is
foreign while it works (`gpumanager.compute.foreign`): the arbiter knows then that a drain shows
nothing. Its time goes to the container of its cgroup, or to no one:

* What others outside of turns had is given back to the containers that take turns, for a turn is
  charged by the clock, which runs on while the GPU works for somebody else.
* A container for which samples show much more than its turns were charged is charged for the rest
  (`gpumanager.compute.audit`), and nobody else ever is.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.audit import Audit, Payer, UnknownProcesses
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

Place = tuple[AllocationID, int]
"""A container, and its device."""


@dataclass(slots=True)
class _Gpu:
    """until: when nobody is foreign any more. others: of each container, who has the GPU beside
    those that take turns and itself. charged: what its turns were, when that was last looked at."""

    until: int = 0
    audit: Audit = field(default_factory=Audit)
    others: dict[Place, UnknownProcesses] = field(default_factory=dict)
    charged: dict[Place, int] = field(default_factory=dict)


class OutsideUse:
    """Of all GPUs on which containers take turns. peers: knows the containers of processes."""

    def __init__(self, turns: Turns, peers: PeerCheck | None = None) -> None:
        self._turns = turns
        self._peers = peers
        self._gpus: dict[GpuUUID, _Gpu] = {}
        self._noticed: set[Place] = set()

    def look(
        self, now_ns: int, takers: Collection[ServedAllocation], answers: UtilizationByGpu
    ) -> None:
        """takers: the allocations that take turns. answers: as `VirtualManager.share_now`."""
        for gpu in answers.keys() | self._gpus.keys():
            places = {(one.allocation, at): one for one in takers for at in one.places(gpu)}
            known = self._gpus.setdefault(gpu, _Gpu())
            if gpu in answers and places:
                self._enter(now_ns, gpu, answers[gpu], places)
            if known.until > now_ns:
                _give_back(known, places)
            elif known.until:
                known.until = 0
                self._turns.foreign(gpu, foreign=False)
            known.charged = {place: one.turns_charged(place[1]) for place, one in places.items()}

    def _enter(
        self,
        now: int,
        gpu: GpuUUID,
        answer: GpuUtilization,
        places: Mapping[Place, ServedAllocation],
    ) -> None:
        known = self._gpus[gpu]
        pids = {one.allocation: {each.pid for each in one.processes} for one in places.values()}
        inside = frozenset[int]().union(*pids.values())
        ends = foreign(answer.samples or (), now, inside)
        if ends:
            self._turns.foreign(gpu, foreign=True)
            known.until = max(known.until, *ends.values())
        for pid, owner in self._owners(sorted(ends)[:LOOKUPS], pids.keys()).items():
            pids[owner].add(pid)
        known.others = {place: known.others.get(place) or UnknownProcesses() for place in places}
        for (name, _), others in known.others.items():
            others.enter(answer, inside | pids[name])
        payers = [
            Payer((name, device), frozenset(pids[name]), one.turns_charged(device))
            for (name, device), one in places.items()
        ]
        for (name, device), debt in known.audit.enter(answer, payers).items():
            place = AllocationID(name), device
            places[place].charge_turns(device, debt)
            self._say(place)

    def _owners(
        self, pids: Sequence[int], allocations: Collection[AllocationID]
    ) -> Mapping[int, AllocationID]:
        """Of those processes whose container is known."""
        if self._peers is None:
            return {}
        processes = [one for one in map(find, pids) if one is not None]
        owners = {one.pid: self._peers.owner(allocations, one) for one in processes}
        return {pid: owner for pid, owner in owners.items() if owner is not None}

    def _say(self, place: Place) -> None:
        """Once."""
        if place not in self._noticed:
            self._noticed.add(place)
            log.warning(
                "allocation %s: NVML shows that it uses more of its GPU %d than its turns: the "
                "excess over a tenth of the time is charged too",
                *place,
            )


def _give_back(known: _Gpu, places: Mapping[Place, ServedAllocation]) -> None:
    """Of what turns were charged since the last look, the part that others had meanwhile."""
    for place, one in places.items():
        if place in known.charged and place in known.others:
            grown = one.turns_charged(place[1]) - known.charged[place]
            one.charge_turns(place[1], -round(known.others[place].share * max(0, grown)))
