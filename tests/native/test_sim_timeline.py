"""The timeline on a clock of the test's own: sharing is exact, and no time is lost or made."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sim_box import machine

from gpumanager.sim.gpu import SimulatedGpus
from vcuda_shim import _sim

lib, ffi = _sim.lib, _sim.ffi
GPU = 0
QUEUE_DEPTH = 1024


class Timeline:
    """One GPU and some processes on it, at a time that the test moves."""

    def __init__(self, gpus: SimulatedGpus, processes: int) -> None:
        self.state: Any = gpus._state
        self.now = lib.sim_lock(self.state)
        lib.timeline_advance(self.state, GPU, self.now)
        self.processes = [self._attach() for _ in range(processes)]

    def _attach(self) -> Any:
        process = ffi.new("struct sim_process **")
        assert lib.process_attach(self.state, self.now, process) == 0
        return process[0]

    def submit(self, process: int, duration: int) -> int | None:
        """Where it is in the queue; None when the queue is full."""
        position = ffi.new("uint64_t *")
        result = lib.timeline_submit(
            self.state, self.processes[process], GPU, duration, self.now, position
        )
        return int(position[0]) if result == 0 else None

    def advance(self, duration: int) -> None:
        self.now += duration
        lib.timeline_advance(self.state, GPU, self.now)

    def predict(self, process: int, position: int) -> int:
        return int(lib.timeline_predict(self.state, self.processes[process], GPU, position))

    def end(self, process: int, position: int) -> int:
        return int(lib.timeline_end(self.state, self.processes[process], GPU, position))


@contextmanager
def timeline(processes: int) -> Iterator[tuple[SimulatedGpus, Timeline]]:
    with tempfile.TemporaryDirectory(prefix="gm") as directory:
        gpus = SimulatedGpus.create(Path(directory), machine(1))
        made = Timeline(gpus, processes)
        try:
            yield gpus, made
        finally:
            lib.sim_unlock(made.state)
            gpus.close()


def test_a_process_alone_proceeds_at_full_speed() -> None:
    with timeline(1) as (_, line):
        start, first, second = line.now, line.submit(0, 700), line.submit(0, 300)
        assert first is not None
        assert second is not None

        line.advance(5000)

        assert (line.end(0, first), line.end(0, second)) == (start + 700, start + 1000)


def test_three_processes_proceed_at_a_third_until_the_shortest_is_done() -> None:
    with timeline(3) as (_, line):
        start = line.now
        ends = [line.submit(process, work) for process, work in enumerate((300, 600, 900))]

        line.advance(5000)

        assert [
            line.end(process, end) - start for process, end in enumerate(ends) if end is not None
        ] == [900, 1500, 1800]


def test_a_full_queue_takes_no_more() -> None:
    with timeline(1) as (_, line):
        for _ in range(QUEUE_DEPTH):
            assert line.submit(0, 10) is not None

        assert line.submit(0, 10) is None
        line.advance(10)
        assert line.submit(0, 10) is not None


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3_000_000), st.integers(0, 5_000_000)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_predictions_come_true_and_no_gpu_time_is_lost_or_made(
    steps: list[tuple[int, int, int]],
) -> None:
    with timeline(3) as (gpus, line):
        start, submitted = line.now, [0, 0, 0]
        last: dict[int, int] = {}
        for process, work, pause in steps:
            position = line.submit(process, work)
            assert position is not None
            last[process] = position
            submitted[process] += work
            line.advance(pause)
        predicted = {process: line.predict(process, last[process]) for process in last}
        pending = {process for process in last if predicted[process] > line.now}

        line.advance(sum(submitted) + 10)

        for process in pending:
            assert abs(line.end(process, last[process]) - predicted[process]) <= 3
        lib.sim_unlock(line.state)
        (tenant,) = gpus.tenants()
        lib.sim_lock(line.state)
        account = tenant.devices[gpus.machine.topology.gpus[0].uuid]
        assert account.busy_ns == sum(submitted)
        assert account.busy_ns <= line.now - start
