"""How often GPUs are probed: NVML takes locks that programs on the GPU wait for."""

import pytest

from gpumanager.gpu.health import prober
from gpumanager.gpu.health.prober import HealthMessage, HealthProber, ProbeRound, ProbeTiming
from gpumanager.gpu.health.state import HealthEvent, ProbeResult
from gpumanager.gpu.values import GpuUUID

GPU = GpuUUID("GPU-0")


class Clock:
    """A source whose probes take `cost` seconds of a clock that nothing else moves."""

    def __init__(self, cost: float) -> None:
        self.now, self.cost = 100.0, cost

    def monotonic(self) -> float:
        return self.now

    def gpus(self) -> tuple[GpuUUID, ...]:
        return (GPU,)

    def wait(self, seconds: float) -> tuple[HealthEvent, ...]:
        self.now += seconds
        return ()

    def tells_events(self) -> bool:
        return True

    def probe(self, gpu: GpuUUID) -> ProbeResult:
        del gpu
        self.now += self.cost
        return ProbeResult()

    def reopen(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("cost", "apart"), [(0.0, 10), (0.1, 10), (0.3, 30), (5.0, 60)])
def test_rounds_take_a_hundredth_of_the_time_and_are_a_minute_apart_at_most(
    monkeypatch: pytest.MonkeyPatch, cost: float, apart: int
) -> None:
    clock, told = Clock(cost), list[HealthMessage]()
    monkeypatch.setattr(prober, "time", clock)
    thread = HealthProber(clock, ProbeTiming(), told.append, lambda: ())

    while clock.now < 100.0 + 600:
        thread._turn()

    rounds = sum(isinstance(one, ProbeRound) for one in told)
    assert rounds == pytest.approx(600 / (apart + cost), abs=5)  # it waits a second at a time
