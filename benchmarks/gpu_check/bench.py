"""What a stage has at hand: the command's options, and rooms for limited programs once it asks."""

import json
import os
import shutil
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gpu_check.outcome import Absent, Lost
from gpu_check.results import Results

if TYPE_CHECKING:
    from gpu_check.place import Place

ROOT: Final = Path(__file__).resolve().parents[2]
"""Of the checkout, or of the bundle."""

PROGRAMS: Final = ROOT / "programs"
"""gpu_facts, launches, runtime and tenants, compiled; in a bundle."""

WORKLOADS: Final = Path(__file__).resolve().parent / "workloads"

PLANNED: Final = "planned.json"

SLOWNESS: Final = "GPU_CHECK_SLOWNESS"
"""Variable for a machine that is busy with other things: all bounds of time are multiplied by it,
and what is measured in time may miss its bar by that much more."""


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
    _place: "Place | None" = None

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def log(self, name: str) -> Path:
        """A file for a program's output; the runner keeps all of them in its archive."""
        return self.work / f"{name}.log"

    def plan(self, checks: list[str]) -> None:
        """Names of checks that are not finished."""
        (self.work / PLANNED).write_text(json.dumps(checks))

    async def place(self) -> "Place":
        """The rooms, made at the first call; raises CheckFailed and Missing."""
        if self._place is None:
            from gpu_check.machine import look
            from gpu_check.place import furnished

            machine = await look(self.python, self.gpu, self.work)
            self._place = await self._stack.enter_async_context(furnished(machine, self.work))
        return self._place

    async def require(self, modules: tuple[str, ...]) -> None:
        """Raises Absent where the workloads' Python lacks one, and Lost where PyTorch, which is
        imported beside the first stages, did not come."""
        if "torch" in modules:
            self._require_torch()
        others = [module for module in modules if module != "torch"]
        if others:
            place = await self.place()
            if lacking := [module for module in others if not place.has(module)]:
                raise Absent(f"{self.python} has no {' and no '.join(lacking)}")

    def _require_torch(self) -> None:
        if not self.torch.exists():
            raise Lost("PyTorch's first import has not ended yet")
        told: dict[str, Any] = json.loads(self.torch.read_text())
        if not told["found"]:
            raise Absent(f"{self.python} has no torch")
        if told["error"] is not None:
            raise Lost(f"PyTorch cannot be imported: {told['error']}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


def patience() -> float:
    """How much slower than others this machine may be."""
    return float(os.environ.get(SLOWNESS, "1"))


def patient(seconds: float) -> float:
    """A bound on this machine."""
    return seconds * patience()


def program(name: str, work: Path) -> Path:
    """A compiled program of the bundle, which may have lost its x-bit on the way, to a folder that
    cannot be written; raises Lost."""
    path = PROGRAMS / name
    if not path.exists():
        raise Lost(f"there is no {path}: make gpu-bundle builds it")
    if os.access(path, os.X_OK):
        return path
    try:
        path.chmod(0o755)
    except OSError:
        path = Path(shutil.copyfile(path, work / name))
        path.chmod(0o755)
    return path


def tool(name: str) -> str:
    """A program of this machine; raises Absent."""
    path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if path is None:
        raise Absent(f"no {name} here")
    return path
