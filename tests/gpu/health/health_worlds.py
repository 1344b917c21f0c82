"""Worlds in which GPUs fall ill, for the contract of a health source.

`ToldWorld` is the fake that other tests use; `SimulatedWorld` is the real source over the simulated
NVML. What holds in both is what a fake may be trusted with.
"""

import json
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from gpu_faults import SimulatedFaults

from gpumanager.gpu.health import state
from gpumanager.gpu.health.events import HealthSource
from gpumanager.gpu.health.state import HealthEvent, ProbeResult
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.values import GpuUUID
from tests.native.sim_box import SimBox, sim_box

ANSWER_WITHIN = 120.0


class World(Protocol):
    """GPUs, a source that looks at them, and what can happen to them."""

    @property
    def source(self) -> HealthSource: ...

    @property
    def gpus(self) -> tuple[GpuUUID, ...]: ...

    def xid(self, gpu: GpuUUID, code: int) -> None: ...

    def double_bit_error(self, gpu: GpuUUID) -> None: ...

    def remap(self, gpu: GpuUUID, *, pending: bool, failed: bool) -> None: ...

    def lose(self, gpu: GpuUUID) -> None: ...

    def unplug(self, gpu: GpuUUID) -> None: ...

    def restore(self, gpu: GpuUUID) -> None: ...

    def unload(self) -> None: ...

    def load(self) -> None: ...

    def without_events(self) -> None: ...


class ToldSource:
    """Answers what its world was told."""

    def __init__(self, gpus: tuple[GpuUUID, ...]) -> None:
        self.listed = self.present = gpus
        self.findings = dict.fromkeys(gpus, ProbeResult())
        self.problem = ""
        self.mistake: Exception | None = None
        """What is raised that no source should raise."""
        self.events = True
        self.hangs: set[GpuUUID | None] = set()
        """What is not answered, for as long as it is in here."""
        self.closed = False
        self._waiting: list[HealthEvent] = []
        self._changed = threading.Condition()
        self._watched = False

    def gpus(self) -> tuple[GpuUUID, ...]:
        self._answering(None)
        return self.listed

    def wait(self, seconds: float) -> tuple[HealthEvent, ...]:
        self._answering(None)
        self._watched = True
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting), seconds)
            found = tuple(self._waiting[:1])
            self._waiting = self._waiting[1:]
        return found

    def tells_events(self) -> bool:
        return self.events and self._watched

    def probe(self, gpu: GpuUUID) -> ProbeResult:
        self._answering(gpu)
        return self.findings.get(gpu, ProbeResult(problem="the driver does not know it any more"))

    def reopen(self) -> None:
        self._answering(None)
        self.listed = self.present
        for gpu in self.findings.keys() - set(self.present):
            del self.findings[gpu]

    def close(self) -> None:
        self.closed = True

    def happen(self, event: HealthEvent) -> None:
        with self._changed:
            self._waiting += [event] * (self.events and self._watched)
            self._changed.notify_all()

    def change(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _answering(self, gpu: GpuUUID | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: gpu not in self.hangs)
        if self.mistake:
            raise self.mistake
        if self.problem:
            self._watched, self._waiting = False, []
            raise NvmlError(self.problem)


class ToldWorld:
    def __init__(self, count: int = 2) -> None:
        self.gpus = tuple(GpuUUID(f"GPU-{index}") for index in range(count))
        self.source = ToldSource(self.gpus)

    def xid(self, gpu: GpuUUID, code: int) -> None:
        self.source.happen(HealthEvent(gpu, code))

    def double_bit_error(self, gpu: GpuUUID) -> None:
        counted = self.source.findings[gpu].double_bits or 0
        self.source.findings[gpu] = ProbeResult(double_bits=counted + 1)
        self.source.happen(HealthEvent(gpu))

    def remap(self, gpu: GpuUUID, *, pending: bool, failed: bool) -> None:
        self.source.findings[gpu] = ProbeResult(remap_pending=pending, remap_failed=failed)

    def lose(self, gpu: GpuUUID) -> None:
        self.source.findings[gpu] = ProbeResult(problem="it has fallen off the bus")
        self.source.listed = tuple(one for one in self.source.listed if one != gpu)
        self.source.happen(HealthEvent(None))

    def unplug(self, gpu: GpuUUID) -> None:
        self.lose(gpu)
        self.source.present = tuple(one for one in self.source.present if one != gpu)

    def restore(self, gpu: GpuUUID) -> None:
        if gpu in self.source.findings:
            self.source.listed = self.gpus
        self.source.findings[gpu] = ProbeResult()
        self.source.present = self.gpus

    def unload(self) -> None:
        self.source.problem = "the NVIDIA kernel module is not loaded"

    def load(self) -> None:
        self.source.problem = ""

    def without_events(self) -> None:
        self.source.events = False


class SimulatedSource:
    """`NvmlHealth` in its process."""

    def __init__(self, box: SimBox) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", str(Path(__file__).with_name("health_process.py"))],
            env=box.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def gpus(self) -> tuple[GpuUUID, ...]:
        return tuple(self._ask("gpus"))

    def wait(self, seconds: float) -> tuple[HealthEvent, ...]:
        return tuple(_value(one) for one in self._ask("wait", seconds))

    def tells_events(self) -> bool:
        return bool(self._ask("events"))

    def probe(self, gpu: GpuUUID) -> ProbeResult:
        finding: ProbeResult = _value(self._ask("probe", gpu))
        return finding

    def reopen(self) -> None:
        self._ask("reopen")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _ask(self, *words: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_WITHIN)
        assert ready, f"no answer to {words} in time"
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise NvmlError(answer["error"])
        return answer["answer"]


def _value(named: Any) -> Any:
    name, fields = named
    return getattr(state, name)(**fields)


class SimulatedWorld:
    def __init__(self, box: SimBox) -> None:
        self._faults = SimulatedFaults(box.gpus)
        self.gpus = tuple(gpu.uuid for gpu in box.machine.topology.gpus)
        self.source = SimulatedSource(box)

    def xid(self, gpu: GpuUUID, code: int) -> None:
        self._faults.xid(gpu, code)

    def double_bit_error(self, gpu: GpuUUID) -> None:
        self._faults.double_bit_error(gpu)

    def remap(self, gpu: GpuUUID, *, pending: bool, failed: bool) -> None:
        self._faults.remap(gpu, pending=pending, failed=failed)

    def lose(self, gpu: GpuUUID) -> None:
        self._faults.lose(gpu)

    def unplug(self, gpu: GpuUUID) -> None:
        self._faults.unplug(gpu)

    def restore(self, gpu: GpuUUID) -> None:
        self._faults.restore(gpu)

    def unload(self) -> None:
        self._faults.unload()

    def load(self) -> None:
        self._faults.load()

    def without_events(self) -> None:
        self._faults.unsupported(events=True)


@contextmanager
def simulated_world() -> Iterator[SimulatedWorld]:
    with sim_box() as box:
        world = SimulatedWorld(box)
        try:
            yield world
        finally:
            world.source.close()
