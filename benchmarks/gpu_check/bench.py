"""What a stage has at hand: the command's options, and rooms for limited programs once it asks."""

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from gpu_check.outcome import CheckFailed
from gpu_check.results import Results

if TYPE_CHECKING:
    from gpu_check.place import Place

ROOT: Final = Path(__file__).resolve().parents[2]
"""Of the checkout, or of the bundle."""

PROGRAMS: Final = ROOT / "programs"
"""gpu_facts and launches, compiled; in a bundle."""

WORKLOADS: Final = Path(__file__).resolve().parent / "workloads"

LOOK_SECONDS: Final = 0.2

SLOWNESS: Final = "GPU_CHECK_SLOWNESS"
"""Variable by which all bounds are multiplied, for a machine that is busy with other things."""


@dataclass(slots=True)
class Bench:
    """python: runs the workloads. work: this stage's files; its name is short enough for sockets.
    torch: the file that the first import of PyTorch writes when it has ended.
    deadline: of time.monotonic().
    """

    python: Path
    gpu: str | None
    work: Path
    results: Results
    torch: Path
    deadline: float
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _made: "dict[bool, Place]" = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def log(self, name: str) -> Path:
        """A file for a program's output; the runner keeps all of them in its archive."""
        return self.work / f"{name}.log"

    async def place(self, *, sampled: bool = True) -> "Place":
        """The rooms, made at the first call; raises CheckFailed and Missing.

        sampled: the manager asks NVML how busy each process keeps the GPU, as an agent's does.
        """
        if sampled not in self._made:
            from gpu_check.machine import look
            from gpu_check.place import furnished

            work = self.work if sampled else self.work / "u"
            work.mkdir(exist_ok=True)
            machine = await look(self.python, self.gpu, work)
            place = await self._stack.enter_async_context(furnished(machine, work, sampled=sampled))
            self._made[sampled] = place
        return self._made[sampled]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def torch_imported(self) -> str | None:
        """None once PyTorch has been imported and has found the GPU; else why not.

        The first import from a cold disk may take minutes: it runs from the beginning of all
        stages on, beside those that need none.
        """
        while not self.torch.exists():
            if self.left <= 0:
                return "PyTorch's first import has not ended yet"
            await asyncio.sleep(LOOK_SECONDS)
        told = json.loads(self.torch.read_text())
        return None if told["error"] is None else f"PyTorch cannot be imported: {told['error']}"


def patient(seconds: float) -> float:
    """A bound on this machine."""
    return seconds * float(os.environ.get(SLOWNESS, "1"))


def program(name: str) -> Path:
    """A compiled program of the bundle; raises CheckFailed."""
    path = PROGRAMS / name
    if not path.exists():
        raise CheckFailed(f"there is no {path}: make gpu-bundle builds it")
    return path
