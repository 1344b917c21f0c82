"""Pauses containers that go on launching out of turn: freezes their cgroups, and thaws them again.

At each tick `gpumanager.compute.overdraft` decides which allocations are paused. A frozen container
launches nothing; what it has queued already runs on, and it is charged for that. Its processes can
neither refuse nor end it, however many they are. No process gets a signal.

A container stays frozen until it is thawed. So its cgroup is written to the allocation's directory
before it is frozen, and a later agent that finds it there thaws it, whatever runs in it. If it
cannot be written, it is not frozen. A container of a pod that terminates is thawed: it has to end.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NewType, Protocol

from gpumanager.compute.audit import SECOND
from gpumanager.ids import AllocationID
from gpumanager.limits.processes import Process

log = logging.getLogger(__name__)

PAUSED_FILE: Final = "paused"
"""In the allocation's directory while its containers may be frozen: one cgroup per line."""

MOST_CONTAINERS: Final = 64
"""How many of one allocation are frozen; a claim may have several containers."""

PROCESSES_PER_TICK: Final = 16
"""For how many processes of an allocation a tick looks up the container; the next tick goes on."""

TICKS_TO_TAKE_EFFECT: Final = 20
"""After as many ticks in a row at which it is paused, an allocation that is not frozen, or uses GPU
time all the same, is logged."""

Cgroup = NewType("Cgroup", str)
"""Names a container's cgroup, on one line. A later agent has to understand it, too."""


class Freezer(Protocol):
    """Freezes containers, whatever their processes do. Called in the event loop: never blocks."""

    def container(self, allocation: AllocationID, process: Process) -> Cgroup | None:
        """Return the container of a process; None unless it is one of the allocation's pods."""

    def terminates(self, cgroup: Cgroup) -> bool:
        """Return whether its pod is about to end."""

    def freeze(self, cgroup: Cgroup) -> None:
        """Safe to repeat. Raises OSError; FileNotFoundError if the container has ended."""

    def thaw(self, cgroup: Cgroup) -> None:
        """Safe to repeat. Raises OSError; FileNotFoundError if the container has ended."""

    def is_frozen(self, cgroup: Cgroup) -> bool:
        """Return whether all of its processes have stopped; False if the container has ended."""


@dataclass(slots=True)
class _Overdrawn:
    """An allocation that may be paused. next_process: where the next tick goes on looking up
    containers. paused_ticks: in a row, up to now. least_excess: the lowest in these ticks."""

    cgroups: list[Cgroup] = field(default_factory=list)
    next_process: int = 0
    paused_ticks: int = 0
    least_excess: float = 0.0


class Pauser:
    """Pauses allocations. directory: of an allocation."""

    def __init__(self, directory: Callable[[AllocationID], Path], freezer: Freezer) -> None:
        self._directory = directory
        self._freezer = freezer
        self._overdrawn: dict[AllocationID, _Overdrawn] = {}
        self._logged: set[tuple[AllocationID, str]] = set()

    def tick(
        self,
        overdrawn: Collection[AllocationID],
        paused: Mapping[AllocationID, float],
        processes: Callable[[AllocationID], Sequence[Process]],
    ) -> None:
        """Freeze the containers of `paused`, and thaw all others.

        overdrawn: all that may be paused at some tick. paused: those of them that have to wait now,
        and by how many ns of GPU time each is ahead. processes: of an allocation.
        """
        for allocation in self._overdrawn.keys() - set(overdrawn):
            self.resume(allocation)
        for allocation in overdrawn:
            state = self._overdrawn.setdefault(allocation, _Overdrawn())
            self._find_containers(allocation, state, processes(allocation))
            if allocation in paused:
                self._freeze_all(allocation, state, paused[allocation])
            elif state.paused_ticks:
                state.paused_ticks = 0
                self._thaw_all(allocation, state.cgroups)

    def resume(self, allocation: AllocationID) -> None:
        """Thaw all of its containers, also those that an earlier agent froze, and forget it."""
        self._overdrawn.pop(allocation, None)
        path = self._directory(allocation) / PAUSED_FILE
        try:
            cgroups = [Cgroup(line) for line in path.read_text().splitlines()]
            if self._thaw_all(allocation, cgroups):
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("allocation %s may stay frozen: %s", allocation, error)

    def _find_containers(
        self, allocation: AllocationID, state: _Overdrawn, processes: Sequence[Process]
    ) -> None:
        """Look up containers of some processes; write new ones to the file before they count."""
        begin = state.next_process if state.next_process < len(processes) else 0
        some = processes[begin : begin + PROCESSES_PER_TICK]
        state.next_process = begin + len(some)
        found = {self._freezer.container(allocation, process) for process in some}
        new = sorted(cgroup for cgroup in found if cgroup and cgroup not in state.cgroups)
        cgroups = (state.cgroups + new)[:MOST_CONTAINERS]
        if some and not cgroups:
            self._warn(allocation, "the cgroups of its processes name no container of its pods")
        if cgroups == state.cgroups:
            return
        try:
            path = self._directory(allocation) / PAUSED_FILE
            path.write_text("".join(f"{cgroup}\n" for cgroup in cgroups))
        except OSError as error:
            self._warn(allocation, str(error))
            return
        state.cgroups = cgroups

    def _freeze_all(self, allocation: AllocationID, state: _Overdrawn, excess: float) -> None:
        """Freeze again what another program has thawed, too; then check that it has an effect."""
        frozen = []
        for cgroup in tuple(state.cgroups):
            try:
                if self._freezer.terminates(cgroup):  # its processes have to run to be able to end
                    self._freezer.thaw(cgroup)
                else:
                    self._freezer.freeze(cgroup)
                    frozen.append(cgroup)
            except FileNotFoundError:
                state.cgroups.remove(cgroup)
            except OSError as error:
                self._warn(allocation, str(error))
        state.least_excess = min(state.least_excess, excess) if state.paused_ticks else excess
        state.paused_ticks += 1
        if state.paused_ticks <= TICKS_TO_TAKE_EFFECT:
            return
        if not all(map(self._freezer.is_frozen, frozen)):
            self._warn(allocation, "its cgroup does not freeze")
        elif frozen and excess > state.least_excess + SECOND:
            self._warn(allocation, "it uses GPU time although its containers are frozen")

    def _thaw_all(self, allocation: AllocationID, cgroups: Sequence[Cgroup]) -> bool:
        """Return whether all of them are thawed, or have ended."""
        all_thawed = True
        for cgroup in cgroups:
            try:
                self._freezer.thaw(cgroup)
            except FileNotFoundError:
                continue
            except OSError as error:
                all_thawed = False
                log.warning("allocation %s may stay frozen: %s", allocation, error)
        return all_thawed

    def _warn(self, allocation: AllocationID, why: str) -> None:
        """Log it, once for each reason."""
        if (allocation, why) not in self._logged:
            self._logged.add((allocation, why))
            log.warning("cannot pause allocation %s: %s", allocation, why)
