"""Limits of memory, kinds of memory, and ways of launching: one workload and one judgement each."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from gpu_check import judge
from gpu_check.bench import Bench
from gpu_check.conductor import Check
from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding
from gpu_check.place import WHOLE

LIMIT: Final = 50
"""Percent of those that compute and are not measured: the limiter is at work."""


@dataclass(frozen=True, slots=True)
class Script:
    """fills: with the smaller memory limit. torch: asks PyTorch, too, where it is there."""

    file: str
    judged: Callable[[Evidence], Finding]
    cores: int = LIMIT
    fills: bool = False
    torch: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 30.0

    async def run(self, bench: Bench) -> AsyncIterator[Finding]:
        place = await bench.place()
        memory = place.filled() if self.fills else place.computing()
        room = await place.limit(self.cores, memory)
        ask_torch = self.torch and place.has("torch") and await bench.torch_imported() is None
        words = place.words() if ask_torch else ()
        evidence = await place.run(room, self.file, self.seconds, *words, **self.environment)
        yield self.judged(evidence)


def script(name: str, one: Script, *needs: str) -> Check:
    return Check(name, one.seconds + 10, one.run, needs)


def fills_by_torch(**environment: str) -> Script:
    return Script("torch_memory.py", judge.filled, fills=True, environment=environment)


ASYNC: Final = fills_by_torch(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
SEGMENTS: Final = fills_by_torch(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")

CHECKS: Final = (
    script("memory limit, driver API", Script("memory.py", judge.exact, WHOLE, fills=True)),
    script("pieces of 1.125 MiB", Script("odd.py", judge.odd, fills=True)),
    script("managed memory", Script("managed.py", judge.managed, fills=True)),
    script("memory of another process", Script("importer.py", judge.imported)),
    script("cuMemAllocAsync", Script("pool.py", judge.filled, fills=True)),
    script("green context", Script("green.py", judge.works)),
    script("dependent launches", Script("dependent.py", judge.works)),
    script("views of memory", Script("views.py", judge.consistent, torch=True)),
    script("PyTorch computes", Script("accepts.py", judge.accepted), "torch"),
    script("memory limit, PyTorch", fills_by_torch(), "torch"),
    script("fork", Script("fork.py", judge.forked), "torch"),
    script("CUDA graph", Script("graphs.py", judge.graphs), "torch"),
    script("several processes", Script("several.py", judge.shared, fills=True), "torch"),
    script("cudaMallocAsync", ASYNC, "torch"),
    script("expandable segments", SEGMENTS, "torch"),
    script("Triton", Script("triton_add.py", judge.triton), "torch", "triton"),
    script("CuPy", Script("cupy_arrays.py", judge.filled, fills=True), "cupy"),
)
