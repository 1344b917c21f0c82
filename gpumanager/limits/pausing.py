"""Containers that go on launching out of turn are frozen from outside, and thawed in time.

Which containers is decided at each tick (`gpumanager.compute.overdraft`); here their cgroups are
frozen and thawed. A frozen container launches nothing, and what it has queued runs on and is paid
for. Its processes can neither refuse that nor end it, however many they are; no pid is signalled.

A container stays frozen until it is thawed. So before it is frozen its cgroup is written into the
allocation's directory, and a manager that finds it there thaws it, whatever lives in it. Where it
cannot be written, it is not frozen. A container of a pod that terminates is thawed: it has to end.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NewType, Protocol

from gpumanager.compute.values import SECOND
from gpumanager.ids import AllocationID
from gpumanager.limits.processes import Process

log = logging.getLogger(__name__)

MARK: Final = "paused"
"""A file in the allocation's directory, while its containers may be frozen: a cgroup a line."""

CONTAINERS: Final = 64
"""Of an allocation that are frozen: a claim may have several."""

PROCESSES_PER_LOOK: Final = 16
"""Of an allocation, whose containers are looked up: all of them in turn, some at each look."""

EFFECT_LOOKS: Final = 20
"""In a row, at which a container was to be frozen: then it is, or that is a finding."""

Cgroup = NewType("Cgroup", str)
"""The name of a container's cgroup, on one line; a later agent knows it, too."""


class Freezer(Protocol):
    """Freezes containers, whatever their processes do. Called in the loop: it must not wait."""

    def container(self, allocation: AllocationID, process: Process) -> Cgroup | None:
        """Return that of this process; None where it may not be of the allocation's pods."""

    def terminates(self, cgroup: Cgroup) -> bool:
        """Return whether its pod is about to end."""

    def freeze(self, cgroup: Cgroup) -> None:
        """Freeze it; safe to repeat. Raises OSError, FileNotFoundError where it has ended."""

    def thaw(self, cgroup: Cgroup) -> None:
        """Thaw it, as `freeze`."""

    def is_frozen(self, cgroup: Cgroup) -> bool:
        """Return whether all of its processes have stopped; False where it has ended."""


@dataclass(slots=True)
class _Held:
    """An allocation to pause. next: the process to look up next; looks: in a row at which it was to
    be frozen; excess: at the first of them."""

    cgroups: list[Cgroup] = field(default_factory=list)
    next: int = 0
    looks: int = 0
    excess: float = 0.0


class Pausing:
    """Pauses a node's containers. directory: of an allocation; freezer: None where none can be
    frozen."""

    def __init__(
        self, directory: Callable[[AllocationID], Path], freezer: Freezer | None = None
    ) -> None:
        self._directory = directory
        self._freezer = freezer
        self._held: dict[AllocationID, _Held] = {}
        self._said: set[tuple[AllocationID, str]] = set()

    def keep(
        self,
        held: Collection[AllocationID],
        paused: Mapping[AllocationID, float],
        processes: Callable[[AllocationID], Sequence[Process]],
    ) -> None:
        """Pause these from now on, and no others. held: those that may be paused at any
        look. paused: by how many ns of GPU time each is ahead. processes: of an allocation."""
        for one in self._held.keys() - set(held):
            self.resume(one)
        if self._freezer is None:
            for one in paused:
                self._say(one, "this agent has no freezer")
            return
        for one in held:
            state = self._held.setdefault(one, _Held())
            self._find(self._freezer, one, state, processes(one))
            if one in paused:
                self._freeze_all(self._freezer, one, state, paused[one])
            elif state.looks:
                state.looks = 0
                self._thaw_all(self._freezer, one, state.cgroups)

    def resume(self, allocation: AllocationID) -> None:
        """Thaw all of its containers, whichever agent froze them, and hold it no more."""
        self._held.pop(allocation, None)
        path = self._directory(allocation) / MARK
        try:
            cgroups = [Cgroup(line) for line in path.read_text().splitlines()]
            if self._freezer is None:
                log.warning("allocation %s may be frozen: this agent has no freezer", allocation)
            elif self._thaw_all(self._freezer, allocation, cgroups):
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("allocation %s may stay frozen: %s", allocation, error)

    def _find(
        self,
        freezer: Freezer,
        allocation: AllocationID,
        state: _Held,
        processes: Sequence[Process],
    ) -> None:
        """Find containers that are not known yet. What is found is written down first."""
        begin = state.next if state.next < len(processes) else 0
        some = processes[begin : begin + PROCESSES_PER_LOOK]
        state.next = begin + len(some)
        found = {freezer.container(allocation, one) for one in some}
        fresh = sorted(one for one in found if one is not None and one not in state.cgroups)
        cgroups = (state.cgroups + fresh)[:CONTAINERS]
        if some and not cgroups:
            self._say(allocation, "the cgroups of its processes name no container of its pods")
        if cgroups == state.cgroups:
            return
        try:
            (self._directory(allocation) / MARK).write_text("".join(f"{one}\n" for one in cgroups))
        except OSError as error:
            self._say(allocation, str(error))
            return
        state.cgroups = cgroups

    def _freeze_all(
        self, freezer: Freezer, allocation: AllocationID, state: _Held, excess: float
    ) -> None:
        """Freeze its containers, those that another program has thawed, too. Then check the effect.

        Not those of a pod that terminates.
        """
        frozen: list[Cgroup] = []
        for cgroup in tuple(state.cgroups):
            try:
                if freezer.terminates(cgroup):
                    freezer.thaw(cgroup)
                else:
                    freezer.freeze(cgroup)
                    frozen.append(cgroup)
            except FileNotFoundError:
                state.cgroups.remove(cgroup)
            except OSError as error:
                self._say(allocation, str(error))
        state.excess = min(state.excess, excess) if state.looks else excess
        state.looks += 1
        if state.looks <= EFFECT_LOOKS:
            return
        if not all(map(freezer.is_frozen, frozen)):
            self._say(allocation, "its cgroup does not freeze")
        elif frozen and excess > state.excess + SECOND:
            self._say(allocation, "it uses GPU time although its containers are frozen")

    def _thaw_all(
        self, freezer: Freezer, allocation: AllocationID, cgroups: Sequence[Cgroup]
    ) -> bool:
        """Thaw them; return whether none is frozen any more."""
        done = True
        for cgroup in cgroups:
            try:
                freezer.thaw(cgroup)
            except FileNotFoundError:
                continue
            except OSError as error:
                done = False
                log.warning("allocation %s may stay frozen: %s", allocation, error)
        return done

    def _say(self, allocation: AllocationID, why: str) -> None:
        """Log each once."""
        if (allocation, why) not in self._said:
            self._said.add((allocation, why))
            log.warning("cannot pause allocation %s: %s", allocation, why)
