"""The table of checks: what is run, how long it may take, and what it needs."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from gpu_check import judge, overhead, rates
from gpu_check.clock import opened
from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding
from gpu_check.place import WHOLE, Place

LIMIT: Final = 50
"""Percent of those that compute and are not measured: the limiter is at work."""


@dataclass(frozen=True, slots=True)
class Check:
    """seconds: its bound. needs: what the workloads' Python must be able to import."""

    name: str
    seconds: float
    run: Callable[[Place], AsyncIterator[Finding]]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """A check that is one workload and one judgement. fills: with the smaller memory limit."""

    file: str
    judged: Callable[[Evidence], Finding]
    cores: int = LIMIT
    fills: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 40.0

    async def run(self, place: Place) -> AsyncIterator[Finding]:
        memory = place.filled() if self.fills else place.computing()
        room = await place.limit(self.cores, memory)
        evidence = await place.run(
            room, self.file, self.seconds, *place.words(), **self.environment
        )
        yield self.judged(evidence)


TORCH: Final = ("torch",)
ASYNC_ALLOCATOR: Final = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
SEGMENTS: Final = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def script(name: str, one: Script, *needs: str) -> Check:
    return Check(name, one.seconds + 10, one.run, needs)


async def nobody_else(place: Place) -> AsyncIterator[Finding]:
    async with opened(place.machine.gpu) as clock:
        yield judge.idle(*await clock.others())


def shares_of(engine: str, grid: rates.Grid) -> Callable[[Place], AsyncIterator[Finding]]:
    return lambda place: rates.measure(place, engine, grid)


def workload_of(engine: str) -> Callable[[Place], AsyncIterator[Finding]]:
    return lambda place: overhead.of_a_workload(place, engine)


FIRST: Final = (
    script("memory limit, driver API", Script("memory.py", judge.exact, WHOLE, fills=True)),
    script("views of memory", Script("views.py", judge.consistent)),
)
ALONE: Final = Check("nobody else", 10, nobody_else)
WITH_TORCH: Final = (
    ALONE,
    script("runtime accepts the shim", Script("accepts.py", judge.accepted), "torch"),
    *FIRST,
    script("memory limit, PyTorch", Script("torch_memory.py", judge.filled, fills=True), "torch"),
    script(
        "cudaMallocAsync",
        Script("torch_memory.py", judge.filled, fills=True, environment=ASYNC_ALLOCATOR),
        "torch",
    ),
    script(
        "expandable segments",
        Script("torch_memory.py", judge.filled, fills=True, environment=SEGMENTS),
        "torch",
    ),
    script("several processes", Script("several.py", judge.shared, fills=True), "torch"),
    script("fork", Script("fork.py", judge.forked), "torch"),
    script("CUDA graph", Script("graphs.py", judge.graphs), "torch"),
    Check("launch overhead", 45, overhead.of_a_launch),
    Check("workload overhead", 60, workload_of("torch"), TORCH),
    Check("share", 260, shares_of("torch", rates.FULL), TORCH),
    Check("share, spinning kernels", 60, shares_of("driver", rates.CONTROL)),
    script("Triton", Script("triton_add.py", judge.triton), "torch", "triton"),
    script("CuPy", Script("cupy_arrays.py", judge.filled, fills=True), "cupy"),
)
"""In the order of their weight: where time runs out, the last are left out."""

QUICK: Final = rates.Grid(rates.KERNELS[1:2], ("async",), (30,), (), rates.SETTLE, 0.8)

DRIVER_ONLY: Final = (
    ALONE,
    *FIRST,
    Check("launch overhead", 45, overhead.of_a_launch),
    Check("workload overhead", 60, workload_of("driver")),
    Check("share, spinning kernels", 260, shares_of("driver", rates.FULL)),
)
"""What needs no PyTorch."""

SLOW: Final = frozenset({"share", "share, spinning kernels", "workload overhead"})


def chosen(*, driver_only: bool, quick: bool) -> tuple[Check, ...]:
    """quick: without what takes minutes, but for a single share."""
    checks = DRIVER_ONLY if driver_only else WITH_TORCH
    if not quick:
        return checks
    share = Check("share, spinning kernels", 60, shares_of("driver", QUICK))
    return (*(check for check in checks if check.name not in SLOW), share)
