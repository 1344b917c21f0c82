"""Limits of memory, kinds of memory, and ways of launching: one workload and one judgement each."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from gpu_check import judge
from gpu_check.bench import Bench
from gpu_check.conductor import Check
from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding
from gpu_check.place import UNTHROTTLED, WHOLE

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
        place = await bench.place()
        memory = place.filled() if self.fills else place.computing()
        room = await place.limit(self.cores, memory)
        evidence = await place.run(room, self.file, self.seconds, *self.words, **self.environment)
        yield self.judged(evidence)


def script(name: str, one: Script, *needs: str) -> Check:
    return Check(name, one.seconds + 10, one.run, needs)


def by_allocator(allocator: str, configuration: str) -> Script:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": configuration}
    judged = judge.filled_by(allocator)
    return Script("torch_memory.py", judged, fills=True, environment=environment)


ASYNC: Final = by_allocator("cudaMallocAsync", "backend:cudaMallocAsync")
SEGMENTS: Final = by_allocator("expandable segments", "expandable_segments:True")
GREEN: Final = Script("green.py", judge.works, UNTHROTTLED)
VIEWS: Final = Script("views.py", judge.consistent, words=("torch",))
DEPENDENT: Final = Script("dependent.py", judge.works, UNTHROTTLED)

CHECKS: Final = (
    script("memory limit, driver API", Script("memory.py", judge.exact, WHOLE, fills=True)),
    script("pieces of 1.125 MiB", Script("odd.py", judge.odd, fills=True)),
    script("managed memory", Script("managed.py", judge.managed, fills=True)),
    script("memory of another process", Script("importer.py", judge.imported)),
    script("cuMemAllocAsync", Script("pool.py", judge.filled, fills=True)),
    script("memory of a killed process", Script("killed.py", judge.freed, fills=True)),
    script("green context", GREEN),
    script("dependent launches", DEPENDENT),
    script("views of memory", Script("views.py", judge.consistent)),
    script("views of memory, PyTorch", VIEWS, "torch"),
    script("several processes", Script("several.py", judge.shared, fills=True), "torch"),
    script("cudaMallocAsync", ASYNC, "torch"),
    script("expandable segments", SEGMENTS, "torch"),
    script("fork", Script("fork.py", judge.forked), "torch"),
    script("CUDA graph", Script("graphs.py", judge.graphs, UNTHROTTLED), "torch"),
)
