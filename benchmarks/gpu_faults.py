"""What can go wrong with simulated GPUs and their driver, played from outside while all runs on.

NVML tells it as the real one does: events (Xids, memory errors that could not be corrected), a GPU
that is lost or gone, calls that take long or never end, a driver that is unloaded and loaded, a
virtual machine without topology, events or ECC. CUDA goes on as if nothing were.

What a real library answers to a session from before the driver was loaded anew differs from release
to release; the simulated one answers "unknown error" until it is shut down and opened again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.sim.gpu import SimulatedGpus
from vcuda_shim import _sim

FOREVER: Final = float("inf")
"""Seconds of a call that ends only when what holds it up is over."""

_LONGEST: Final = (1 << 64) - 1
_SECOND: Final = 1_000_000_000


class SimulatedFaults:
    """Of one machine, until its GPUs are closed; every method raises KeyError for a GPU of
    another."""

    def __init__(self, gpus: SimulatedGpus) -> None:
        self.machine, self.device_directory = gpus.machine, gpus.device_directory
        self._state = gpus.state

    def xid(self, gpu: GpuUUID, code: int) -> None:
        """Report an Xid, as the driver does."""
        _sim.lib.faults_event(self._state, self.machine.position(gpu), _sim.lib.SIM_EVENT_XID, code)

    def double_bit_error(self, gpu: GpuUUID) -> None:
        """Report a memory error that could not be corrected, and count it."""
        with self._changed(gpu) as faults:
            faults.double_bits += 1
        kind = _sim.lib.SIM_EVENT_DOUBLE_BIT
        _sim.lib.faults_event(self._state, self.machine.position(gpu), kind, 0)

    def remap(self, gpu: GpuUUID, *, pending: bool = False, failed: bool = False) -> None:
        """Mark a row of its memory to be replaced at the next reset, or one that could not be."""
        with self._changed(gpu) as faults:
            faults.remap_pending, faults.remap_failed = pending, failed

    def lose(self, gpu: GpuUUID) -> None:
        """Drop it off the bus: those who know it cannot ask it any more."""
        with self._changed(gpu) as faults:
            faults.lost = True

    def unplug(self, gpu: GpuUUID) -> None:
        """Lose it, and hide it from who opens the driver from now on."""
        self.lose(gpu)
        self._node(gpu).unlink(missing_ok=True)

    def restore(self, gpu: GpuUUID) -> None:
        """Reset it, or plug it in again: nothing is wrong with it."""
        self._node(gpu).touch()
        with self._changed(gpu) as faults:
            faults.lost = faults.remap_pending = faults.remap_failed = faults.call_ns = 0
            faults.double_bits = 0

    def slow(self, seconds: float, gpu: GpuUUID | None = None) -> None:
        """Make each call of NVML, or of one GPU, take so long; 0: no longer than needed."""
        nanoseconds = _LONGEST if seconds == FOREVER else round(seconds * _SECOND)
        if gpu is not None:
            with self._changed(gpu) as faults:
                faults.call_ns = nanoseconds
            return
        with self._machine() as faults:
            faults.call_ns = nanoseconds

    def unsupported(
        self, *, topology: bool = False, events: bool = False, ecc: bool = False
    ) -> None:
        """Set what this machine's NVML does not support."""
        with self._machine() as faults:
            faults.no_topology, faults.no_events, faults.no_ecc = topology, events, ecc

    def unload(self) -> None:
        """Unload the kernel module."""
        with self._machine() as faults:
            faults.unloaded = True

    def load(self) -> None:
        """Load it (again), and with it every GPU that has a device node, as new."""
        _sim.lib.faults_reload(self._state)
        with self._machine() as faults:
            faults.unloaded = False

    def _node(self, gpu: GpuUUID) -> Path:
        known = self.machine.topology.gpus[self.machine.position(gpu)]
        return self.device_directory / f"nvidia{known.minor}"

    @contextmanager
    def _changed(self, gpu: GpuUUID) -> Iterator[Any]:
        faults = _sim.ffi.new("struct sim_gpu_faults *")
        _sim.lib.faults_get_gpu(self._state, self.machine.position(gpu), faults)
        yield faults
        _sim.lib.faults_set_gpu(self._state, self.machine.position(gpu), faults)

    @contextmanager
    def _machine(self) -> Iterator[Any]:
        faults = _sim.ffi.new("struct sim_machine_faults *")
        _sim.lib.faults_get_machine(self._state, faults)
        yield faults
        _sim.lib.faults_set_machine(self._state, faults)
