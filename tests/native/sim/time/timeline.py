"""One simulated GPU of 40 SMs and some processes on it, at a time that the test moves."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumanager.gpu.values import GpuUUID
from gpumanager.sim.gpu import DeviceAccount, SimulatedGpus, Utilization
from gpumanager.sim.machine import IDEAL, DriverBehaviour
from tests.native.sim_box import machine
from vcuda_shim import _sim

lib, ffi = _sim.lib, _sim.ffi

GPU = 0
SMS = 40
SLICE = 2_000_000
PERIOD = 166_666_667
QUEUE_DEPTH = 1024
MARKER, KERNEL, COLLECTIVE = lib.SIM_MARKER, lib.SIM_KERNEL, lib.SIM_COLLECTIVE
MEMORY, TO_DEVICE, TO_HOST = lib.SIM_MEMORY, lib.SIM_COPY_TO_DEVICE, lib.SIM_COPY_TO_HOST
LEGACY, BLOCKING, OTHER = lib.SIM_LEGACY_LANE, lib.SIM_BLOCKING_LANES, lib.SIM_OTHER_LANES
ALL_LANES = (1 << 64) - 1
BEGIN = 1_000_000_000_000
"""CLOCK_MONOTONIC when a timeline begins: the same each time, and with it what is drawn by it."""

ATTACH = """
import sys
from vcuda_shim import _sim
lib, ffi = _sim.lib, _sim.ffi
state, process = ffi.new("struct sim_state **"), ffi.new("struct sim_process **")
assert lib.sim_open(sys.argv[1].encode(), state) == 0
assert lib.process_attach(state[0], int(sys.argv[2]), process) == 0
place = int(ffi.cast("uintptr_t", process[0])) - int(ffi.cast("uintptr_t", state[0]))
print(place, flush=True)
sys.stdin.read()
"""


class Timeline:
    def __init__(self, gpus: SimulatedGpus, processes: int) -> None:
        self.gpus = gpus
        self.state: Any = gpus._state
        self.start = self.now = lib.sim_lock(self.state)
        lib.timeline_advance(self.state, GPU, self.now)
        self.processes = [self._attach() for _ in range(processes)]

    def _attach(self) -> Any:
        process = ffi.new("struct sim_process **")
        assert lib.process_attach(self.state, self.now, process) == 0
        return process[0]

    def attach_program(self) -> subprocess.Popen[str]:
        """One more process, with a pid of its own, until it is killed."""
        control = str(self.gpus.device_directory / "nvidiactl")
        program = subprocess.Popen(
            [sys.executable, "-c", ATTACH, control, str(self.now)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        place = int(ffi.cast("uintptr_t", self.state)) + int(program.stdout.readline())
        self.processes.append(ffi.cast("struct sim_process *", place))
        return program

    def submit(
        self,
        process: int,
        duration: int = 0,
        *,
        kind: int = KERNEL,
        lane: int = OTHER,
        sms: int = 1,
        after: int | None = None,
        gpu: int = GPU,
        group: int = 0,
        members: int = 0,
    ) -> int | None:
        """Where it is in the queue; None when the queue is full. after: a position to wait for.

        group, members: of a collective.
        """
        task: Any = ffi.new("struct sim_task *")
        task.group, task.members = group, members
        task.duration_ns, task.kind, task.lane, task.sms = duration, kind, lane, sms
        task.after = 0 if after is None else after + 1
        position = ffi.new("uint64_t *")
        result = lib.timeline_submit(self.state, self.processes[process], gpu, task, position)
        return int(position[0]) if result == 0 else None

    def queue(self, process: int, duration: int = 0, **how: Any) -> int:
        """The same where there is room."""
        position = self.submit(process, duration, **how)
        assert position is not None
        return position

    def advance(self, duration: int) -> None:
        self.advance_to(self.now + duration)

    def advance_to(self, now: int, *gpus: int) -> None:
        """gpus: those that somebody looks at; none: all."""
        self.now = now
        for gpu in gpus or range(len(self.gpus.machine.topology.gpus)):
            lib.timeline_advance(self.state, gpu, now)

    def reached(self, process: int, position: int, lanes: int = ALL_LANES) -> bool:
        reach = {"end": position + 1, "lanes": lanes}
        return bool(lib.timeline_reached(self.state, self.processes[process], GPU, reach))

    def predict(self, process: int, position: int, lanes: int = ALL_LANES, gpu: int = GPU) -> int:
        reach = {"end": position + 1, "lanes": lanes}
        return int(lib.timeline_predict(self.state, self.processes[process], gpu, reach))

    def end(self, process: int, position: int, gpu: int = GPU) -> int:
        """Nanoseconds after the start; negative while it has not ended."""
        end = lib.timeline_end(self.state, self.processes[process], gpu, position)
        return int(end) - self.start if end else -1

    def kill(self, process: int) -> None:
        lib.process_clear(self.state, self.processes[process])

    def busy(self, gpu: int = GPU) -> dict[int, int]:
        """GPU time received, by process."""
        return {n: int(lib.account_busy_ns(p, gpu)) for n, p in enumerate(self.processes)}

    def settle_periods(self) -> None:
        """Go to the beginning of a sample period."""
        self.advance_to(self.start + self.sample(0)[1] + PERIOD)

    def sample(self, process: int) -> tuple[int, int]:
        """Percent of the latest period in which it used the GPU, and when that ended; of none: 0,
        and the end of the last."""
        ended = ffi.new("uint64_t *")
        percent = lib.account_sample(self.state, self.processes[process], GPU, ended)
        return int(percent), int(ended[0]) - self.start

    @contextmanager
    def _asked(self) -> Iterator[GpuUUID]:
        """The GPU, for a question that takes the lock."""
        lib.sim_unlock(self.state)
        try:
            yield self.gpus.machine.topology.gpus[0].uuid
        finally:
            lib.sim_lock(self.state)

    def account(self) -> DeviceAccount:
        """Of the one tenant that all processes belong to."""
        with self._asked() as gpu:
            (tenant,) = self.gpus.tenants()
        return tenant.devices[gpu]

    def lost(self) -> int:
        with self._asked() as gpu:
            return self.gpus.lost_ns(gpu)

    def utilization(self, after: int = 0) -> Sequence[Utilization] | None:
        """What NVML answers; after: nanoseconds of CLOCK_MONOTONIC."""
        with self._asked() as gpu:
            return self.gpus.utilization(gpu, after)


@contextmanager
def timeline(processes: int, driver: DriverBehaviour = IDEAL, gpus: int = 1) -> Iterator[Timeline]:
    described = replace(machine(gpus), driver=driver)
    clock = ffi.new("uint64_t *", BEGIN)
    lib.sim_use_clock(clock)
    with tempfile.TemporaryDirectory(prefix="gm") as directory:
        opened = SimulatedGpus.create(Path(directory), described)
        made = Timeline(opened, processes)
        try:
            yield made
        finally:
            lib.sim_unlock(made.state)
            opened.close()
            lib.sim_use_clock(ffi.NULL)
