"""GPU time outside of turns: the agent tells the arbiter, and each container pays for its own.

NVML's samples show which processes take time. A process without a slot in a container that takes
turns is foreign while it works (`gpumanager.compute.foreign`): the arbiter knows then that a drain
shows nothing. Its time goes to the container of its cgroup, or to none:

* What others outside of turns had is given back to the containers that take turns, for a turn is
  charged by the clock, which runs on while the GPU works for others.
* A container for which samples show much more than its turns were charged is charged for the rest
  (`gpumanager.compute.audit`), and no other ever is. One that goes on is held to its guarantee
  from outside, where that is enabled (`gpumanager.compute.overdraft`).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.audit import SECOND, Audit, Payer
from gpumanager.compute.foreign import LEAST_PERCENT, DrawnShare, Mean, foreign
from gpumanager.compute.overdraft import Overdraft
from gpumanager.gpu.usage.samples import GpuUtilization, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.allocation import ServedAllocation
from gpumanager.limits.processes import find
from gpumanager.limits.socket.peers import ProcessOwners
from gpumanager.limits.turns import AllocationTurns, Turns

log = logging.getLogger(__name__)

LOOKUPS: Final = 64
"""Processes of an answer that are looked up; no others count as foreign."""

OTHERS_AT_MOST: Final = 1.5
"""Of what samples say that others had: a mean of 50 draws is off by a fifth often enough."""

RESTED_NS: Final = 2 * SECOND
"""A GPU on which samples name no process is not looked at."""

Place = tuple[AllocationID, int]
"""A container, and its device."""


@dataclass(slots=True)
class _Taker:
    """A container on one GPU. guarantee: a part of the GPU's time. charged: what its turns were
    at the last look, all that we added included. others: by NVML, those beside it that take no
    turns."""

    turns: AllocationTurns
    device: int
    charged: int
    account: Overdraft
    others: DrawnShare
    guarantee: float = 0.0


@dataclass(slots=True)
class _Gpu:
    """number: the arbiter's. until: when none is foreign any more. own: those that take turns,
    by NVML; rate: what they are charged, a mean over as long. looked: the last time. held:
    containers that are held to their guarantee."""

    number: int
    looked: int
    own: DrawnShare
    until: int = 0
    rate: Mean = field(default_factory=Mean)
    audit: Audit = field(default_factory=Audit)
    takers: dict[Place, _Taker] = field(default_factory=dict)
    held: Mapping[AllocationID, Overdraft] = field(default_factory=dict)

    def seat(self, now: int, allocations: Mapping[AllocationID, ServedAllocation]) -> None:
        """Keep those that take turns now."""
        before, self.takers = self.takers, {}
        for name, one in allocations.items():
            if (turns := one.joined) is None:
                continue
            for device, guarantee in turns.guarantees(self.number).items():
                taker = before.get((name, device)) or _Taker(
                    turns, device, turns.charged(device), Overdraft(now), DrawnShare(now)
                )
                taker.turns, taker.guarantee = turns, guarantee
                self.takers[name, device] = taker

    def grown(self, now: int) -> dict[Place, int]:
        """Return what turns were charged since the last look; nothing where that was long ago."""
        grown = {
            place: max(0, one.turns.charged(one.device) - one.charged)
            for place, one in self.takers.items()
        }
        span = max(1, now - self.looked)
        self.rate.enter(span, sum(grown.values()) / span)
        self.looked = now
        return grown if span < RESTED_NS else dict.fromkeys(grown, 0)

    def others_had(self, place: Place) -> float:
        """Return the part of a turn that others outside of turns had: what all turns are charged
        beyond what NVML says that they took, and about as much as it says of the others at most."""
        rate = self.rate.value
        others = OTHERS_AT_MOST * self.takers[place].others.mean.value
        beyond = min(rate - self.own.mean.value, others)
        return min(1.0, max(0.0, beyond) / rate) if rate > 0 else 0.0


class OutsideUse:
    """Accounts for GPU time outside of turns, on all GPUs on which containers take turns."""

    def __init__(self, turns: Turns, owners: ProcessOwners | None = None) -> None:
        self._turns = turns
        self._owners = owners
        self._gpus: dict[GpuUUID, _Gpu] = {}
        self._noticed: frozenset[Place] = frozenset()
        self._said: frozenset[AllocationID] = frozenset()
        self.active = False
        """Whether anything outside of turns worked lately, or is held to account for it."""
        self.overdrawn: frozenset[AllocationID] = frozenset()
        """Containers that still took time outside of their turns at the last look."""
        self.paused: Mapping[AllocationID, float] = {}
        """Those of them that wait until the next look: by how many ns each is ahead."""

    def look(
        self,
        now_ns: int,
        takers: Mapping[AllocationID, ServedAllocation],
        answers: UtilizationByGpu,
    ) -> None:
        """Account for the time since the last look.

        takers: the allocations that take turns. answers: as `VirtualManager.share_now`.
        """
        self.active = False
        for gpu, number in self._turns.numbers.items():
            known = self._gpus.setdefault(gpu, _Gpu(number, now_ns, DrawnShare(now_ns)))
            answer = answers.get(gpu)
            samples = (answer.samples if answer else None) or ()
            working = any(one.percent >= LEAST_PERCENT for one in samples)
            if not (known.until or known.held or working):
                continue
            self.active = True
            known.seat(now_ns, takers)
            grown = known.grown(now_ns)
            if known.until > now_ns:
                for place, one in known.takers.items():
                    one.turns.charge(one.device, -round(known.others_had(place) * grown[place]))
            elif known.until:
                known.until = 0
                self._turns.foreign(number, foreign=False)
            owed = {} if answer is None else self._enter(now_ns, known, takers, answer)
            for place, one in known.takers.items():
                if debt := owed.get(place, 0):
                    one.turns.charge(one.device, debt)
                one.account.look(now_ns, grown[place], debt, one.guarantee)
                one.charged = one.turns.charged(one.device)
            known.held = {
                name: one.account for (name, _), one in known.takers.items() if one.account.held
            }
        accounts = [each for known in self._gpus.values() for each in known.held.items()]
        self.overdrawn = frozenset(name for name, _ in accounts)
        paused = sorted((one.excess, name) for name, one in accounts if one.paused)
        self.paused = {name: excess for excess, name in paused}  # of several GPUs the most
        for name in sorted(self.overdrawn - self._said):
            log.warning(
                "allocation %s goes on launching out of turn: it bypasses its shim; with "
                "--on-bypass=pause the agent pauses it whenever it has had its share",
                name,
            )
        self._said |= self.overdrawn

    def _enter(
        self,
        now: int,
        known: _Gpu,
        takers: Mapping[AllocationID, ServedAllocation],
        answer: GpuUtilization,
    ) -> Mapping[Place, int]:
        """Enter an answer of NVML; return what each container owes by it."""
        pids = {name: {each.pid for each in takers[name].processes} for name, _ in known.takers}
        inside = frozenset[int]().union(*pids.values())
        ends = foreign(answer.samples or (), now, inside)
        outside = list(filter(None, map(find, sorted(ends)[:LOOKUPS])))
        if outside:
            self._turns.foreign(known.number, foreign=True)
            known.until = max(known.until, *(ends[one.pid] for one in outside))
        for one in outside:
            if self._owners and (owner := self._owners.owner(pids.keys(), one)):
                pids[owner].add(one.pid)
        others = frozenset(one.pid for one in outside)
        known.own.enter(answer, inside)
        payers = []
        for (name, device), taker in known.takers.items():
            taker.others.enter(answer, others - pids[name])
            charged = taker.turns.charged(device)
            payers.append(Payer((name, device), frozenset(pids[name]), charged))
        debts = known.audit.enter(answer, payers)
        owed = {(AllocationID(name), device): debt for (name, device), debt in debts.items()}
        for place in sorted(owed.keys() - self._noticed):
            log.warning(
                "allocation %s: NVML shows that it uses more of its GPU %d than its turns: the "
                "excess over a tenth of the time is charged too",
                *place,
            )
        self._noticed |= owed.keys()
        return owed
