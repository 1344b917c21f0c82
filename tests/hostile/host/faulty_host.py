"""A host whose time is set and whose disk fails: for the agent of a HostileNode alone.

The agent runs with faulty_host.c before its C library. What it shall meet is changed while it runs.
"""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumanager.sim.agent import AgentProcess
from vcuda_shim.build import CFLAGS, compiler, run

SOURCE = Path(__file__).with_name("faulty_host.c")
LONGEST = 240


class _Faults(ctypes.Structure):
    _fields_ = (
        ("ahead_s", ctypes.c_int64),
        ("error", ctypes.c_int32),
        ("until", ctypes.c_int32),
        ("each", ctypes.c_int32),
        ("seen", ctypes.c_int32),
        ("below", ctypes.c_char * LONGEST * 2),
    )


class FaultyHost:
    """Of all agents that begin while a test has it."""

    def __init__(self, folder: Path) -> None:
        library, state = folder / "faulty_host.so", folder / "faults"
        run([*compiler(), *CFLAGS, "-shared", "-o", library, SOURCE, "-ldl"])
        state.write_bytes(bytes(ctypes.sizeof(_Faults)))
        with state.open("r+b") as file:
            self._faults = _Faults.from_buffer(mmap.mmap(file.fileno(), 0))
        self.environment = {"LD_PRELOAD": str(library), "FAULTY_HOST": str(state)}

    def set_time(self, hours: float) -> None:
        """So far from the true one, from now on."""
        self._faults.ahead_s = int(hours * 3600)

    @contextmanager
    def failing(
        self, error: int, *below: Path, after: int = 0, each: bool = True
    ) -> Iterator[None]:
        """Calls on files below these fail with this errno: the one after so many, or each from
        there on.
        """
        for row, path in zip(self._faults.below, below, strict=False):
            row.value = bytes(path)
        self._faults.seen, self._faults.until, self._faults.each = 0, after, each
        self._faults.error = error
        try:
            yield
        finally:
            self._faults.error = 0

    @property
    def calls(self) -> int:
        """Calls that could fail, since `failing` began."""
        return int(self._faults.seen)


def faulty(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FaultyHost:
    """Agents that are started from now on meet it."""
    host, environment = FaultyHost(folder), AgentProcess.environment
    monkeypatch.setattr(
        AgentProcess, "environment", lambda agent: environment(agent) | host.environment
    )
    return host
