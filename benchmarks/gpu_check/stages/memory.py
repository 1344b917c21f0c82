"""Limits of memory, kinds of memory, and ways of launching: one workload and one judgement each."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpu_check import judge
from gpu_check.bench import WORKLOADS, Bench
from gpu_check.conductor import Check
from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding
from gpu_check.place import UNTHROTTLED, WHOLE, Place
from gpu_check.process import told
from gpu_check.stages.runtime import OTHER_WAYS, pytorch_meets

LIMIT: Final = 50
"""Percent of those that compute and are not measured: the limiter is at work."""


@dataclass(frozen=True, slots=True)
class Script:
    """fills: with the smaller memory limit."""

    file: str
    judged: Callable[[Evidence], Finding]
    cores: int = LIMIT
    fills: bool = False
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 30.0

    async def run(self, bench: Bench) -> AsyncIterator[Finding]:
        yield self.judged(await self.seen(await bench.place()))

    async def seen(self, place: Place) -> Evidence:
        memory = place.filled() if self.fills else place.computing()
        room = await place.limit(self.cores, memory)
        return await place.run(room, self.file, self.seconds, *self.words, **self.environment)


def optional(file: str) -> Callable[[Bench], AsyncIterator[Finding]]:
    """A way of launching that some drivers lack: without the shim, too."""

    async def run(bench: Bench) -> AsyncIterator[Finding]:
        place = await bench.place()
        command: list[str | Path] = [place.machine.python, WORKLOADS / file]
        bare = await told(command, place.outside(), place.output("bare"), 10.0)
        yield judge.works(bare, await Script(file, judge.exact, UNTHROTTLED).seen(place))

    return run


def script(name: str, one: Script, *needs: str) -> Check:
    return Check(name, one.seconds + 10, one.run, needs)


def by_allocator(allocator: str, configuration: str) -> Script:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": configuration}
    judged = judge.filled_by(allocator)
    return Script("torch_memory.py", judged, fills=True, environment=environment)


ASYNC: Final = by_allocator("cudaMallocAsync", "backend:cudaMallocAsync")
SEGMENTS: Final = by_allocator("expandable segments", "expandable_segments:True")
VIEWS: Final = Script("views.py", judge.consistent, words=("torch",))

CHECKS: Final = (
    script("memory limit, driver API", Script("memory.py", judge.exact, WHOLE, fills=True)),
    script("pieces of 1.125 MiB", Script("odd.py", judge.odd, fills=True)),
    script("managed memory", Script("managed.py", judge.managed, fills=True)),
    script("memory of another process", Script("importer.py", judge.imported)),
    script("cuMemAllocAsync", Script("pool.py", judge.filled, fills=True)),
    script("memory of a killed process", Script("killed.py", judge.freed, fills=True)),
    Check("green context", 15, optional("green.py")),
    Check("dependent launches", 15, optional("dependent.py")),
    script("views of memory", Script("views.py", judge.consistent)),
    script("views of memory, PyTorch", VIEWS, "torch"),
    script("several processes", Script("several.py", judge.shared, fills=True), "torch"),
    script("cudaMallocAsync", ASYNC, "torch"),
    script("expandable segments", SEGMENTS, "torch"),
    script("fork", Script("fork.py", judge.forked), "torch"),
    Check("PyTorch, other ways to the shim", 30, pytorch_meets(OTHER_WAYS), ("torch",)),
    script("CUDA graph", Script("graphs.py", judge.graphs, UNTHROTTLED), "torch"),
)
