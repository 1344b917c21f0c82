"""What the shim costs: a launch, and a workload of many small launches."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from gpu_check import overhead
from gpu_check.bench import Bench
from gpu_check.conductor import Check
from gpu_check.outcome import Finding


async def launch(bench: Bench) -> AsyncIterator[Finding]:
    async for finding in overhead.of_a_launch(await bench.place()):
        yield finding


def workload(engine: str) -> Callable[[Bench], AsyncIterator[Finding]]:
    async def run(bench: Bench) -> AsyncIterator[Finding]:
        async for finding in overhead.of_a_workload(await bench.place(), engine):
            yield finding

    return run


CHECKS: Final = (
    Check("launch overhead", 25, launch),
    Check("workload overhead, driver API", 30, workload("driver")),
    Check("workload overhead, PyTorch", 50, workload("torch"), ("torch",)),
)
