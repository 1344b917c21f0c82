"""A node of which things can be lost: the kubelet's checkpoint, GPUs, the agent at any instant."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gpumanager.gpu.discovery import joined
from gpumanager.gpu.values import Topology, topology
from gpumanager.grants.journal_file import CHANGE_BYTES, JournalFile
from gpumanager.ids import AllocationID
from gpumanager.kube.pod import ContainerKind, ContainerView, PodView
from gpumanager.limits.values import Limit
from gpumanager.sim.in_memory import SimulatedLimits
from tests.deviceplugin.admission.admission_node import (
    JOURNAL,
    AdmissionRefused,
    Crash,
    CrashingFile,
    Node,
    container,
    pod,
)

CHECKPOINT: Final = "kubelet_internal_checkpoint"

Shape = list[tuple[int, int, ContainerKind]]
"""Cores, memory blocks and kind of each container of a pod."""


@dataclass(frozen=True, slots=True)
class Death:
    """The agent dies before or after one step of its work; `skip` of these go well before.

    step: of the journal's file, or `open` and `close` of directories. room: for lines in the file.
    """

    step: str
    room: int
    skip: int
    after: bool


JOURNAL_STEPS: Final = (
    *((step, CHANGE_BYTES) for step in ("_append", "_force")),
    *((step, 0) for step in ("_write", "_replace", "_force_directory")),
)
"""Of writing a line, and of writing a file: with room for lines and without."""
DIRECTORY_STEPS: Final = (("open", CHANGE_BYTES), ("close", CHANGE_BYTES))
STEPS: Final = (*JOURNAL_STEPS, *DIRECTORY_STEPS)


class MortalVirtual(SimulatedLimits):
    """Directories, at which the agent may die."""

    death: Death | None = None

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        if self._dies("open") and not self._later("open"):
            raise Crash
        path = await super().open(allocation, limits)
        self._end("open")
        return path

    async def close(self, allocation: AllocationID) -> None:
        if self._dies("close") and not self._later("close"):
            raise Crash
        await super().close(allocation)
        self._end("close")

    def _dies(self, step: str) -> bool:
        return self.death is not None and self.death.step == step and not self.death.skip

    def _later(self, step: str) -> bool:
        return self._dies(step) and self.death is not None and self.death.after

    def _end(self, step: str) -> None:
        if self._later(step):
            raise Crash
        if self.death is not None and self.death.step == step:
            self.death = replace(self.death, skip=self.death.skip - 1)


class HistoryNode(Node):
    """machine: all GPUs that the node ever has; `topology`: those that the agent found."""

    def __init__(self, directory: Path, machine: Topology, seed: int) -> None:
        super().__init__(directory, machine, seed)
        self.machine = machine
        self.virtual = self.mortal = MortalVirtual(directory)
        self.allocator = self.new_allocator()

    # The agent.

    async def restart_dying(self, death: Death) -> None:
        """A new agent that is to die; raises Crash where it does so while it recovers."""
        path = self.directory / JOURNAL
        if death.step in dict(DIRECTORY_STEPS):
            file: JournalFile = JournalFile(path)
        else:
            after, skip = death.after, death.skip
            file = CrashingFile(path, death.step, after=after, skip=skip, room=death.room)
        self.virtual.open_now.clear()
        self.mortal.death = death
        self.allocator = self.new_allocator(file)
        await self.allocator.recover()
        await self.allocator.kubelet_started()

    async def restart_agent(self) -> None:
        self.mortal.death = None
        await super().restart_agent()

    # The GPUs.

    def has_gpus(self, there: Collection[int]) -> None:
        """When the agent starts next, these of the machine's are there."""
        gpus = [gpu for gpu in self.machine.gpus if gpu.minor in there]
        bonds = [
            [None if a is b else self.machine.bond(a.index, b.index) for b in gpus] for a in gpus
        ]
        found = [replace(gpu, index=index) for index, gpu in enumerate(gpus)]
        self.topology = topology(found, bonds)

    async def find_gpus(self) -> None:
        """The agent sees all of them again, without a start."""
        self.topology = self.machine
        await self.allocator.node.adopt(joined(self.allocator.node.topology, self.machine))

    # The kubelet.

    @property
    def checkpoint(self) -> Path:
        return self.directory / CHECKPOINT

    @property
    def books_whole(self) -> bool:
        """Whether the kubelet's checkpoint can be read."""
        try:
            json.loads(self.checkpoint.read_text())
        except (OSError, ValueError):
            return False
        return True

    def lose_checkpoint(self, *, cut: bool) -> None:
        if cut and self.checkpoint.exists():
            self.checkpoint.write_bytes(self.checkpoint.read_bytes()[:-7])
        else:
            self.checkpoint.unlink(missing_ok=True)

    async def restart_kubelet(self, waiting: Collection[PodView]) -> list[PodView]:
        """It knows what its checkpoint says; returns the pods that are not admitted any more.

        waiting: those that do not run yet. Without a checkpoint it allocates for them anew.
        """
        forgetful = not self.books_whole
        if forgetful:
            self.held.clear()
        await self.allocator.kubelet_started()
        return [one for one in waiting if forgetful and not await self._again(one)]

    async def _again(self, one: PodView) -> bool:
        try:
            await self.admit(one)
        except AdmissionRefused:
            return False
        return True


def spec(shape: Shape) -> list[ContainerView]:
    ordered = sorted(shape, key=lambda one: one[2] is ContainerKind.APP)
    return [container(c, b, f"c{n}", kind) for n, (c, b, kind) in enumerate(ordered)]


def new_pod(number: int, shape: Shape) -> PodView:
    return pod(f"p{number}", *spec(shape))
