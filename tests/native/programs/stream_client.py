"""A program with several streams, through NVIDIA's own cuda-bindings: words for tests.

Work that is queued behind `hold` begins at one moment: when `since` is asked how long it took.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import done, spin

MS = 1_000_000
SM_FULL = 1024
"""Threads of a block that fills an SM of the test's GPU."""

holder = done(cu.cuStreamCreate(1))
page = int(done(cu.cuMemHostAlloc(4096, 0)))
gate = (ctypes.c_uint32 * 1024).from_address(page)


def new(flags: int = 1) -> Any:
    """A stream; 1: that does not block with the legacy one."""
    return done(cu.cuStreamCreate(flags))


def busy(stream: Any, milliseconds: float, blocks: int = 1, threads: int = SM_FULL) -> None:
    """A kernel of that length, on as many SMs as it has blocks of 1024 threads."""
    values = ((round(milliseconds * MS),), (ctypes.c_uint64,))
    done(cu.cuLaunchKernel(spin, blocks, 1, 1, threads, 1, 1, 0, stream, values, 0))


def mark(stream: Any) -> Any:
    """An event recorded there."""
    event = done(cu.cuEventCreate(0))
    done(cu.cuEventRecord(event, stream))
    return event


def hold(streams: Sequence[Any]) -> Any:
    """All these streams wait for one moment; its event."""
    gate[0] = 0
    done(cu.cuStreamWaitValue32(holder, page, 1, 0))
    event = mark(holder)
    for stream in streams:
        done(cu.cuStreamWaitEvent(stream, event, 0))
    return event


def since(begin: Any, *ends: Any) -> list[float]:
    """Milliseconds from one event to others, once they have happened."""
    gate[0] = 1
    done(cu.cuCtxSynchronize())
    return [round(done(cu.cuEventElapsedTime(begin, end)), 4) for end in ends]


def reserve(megabytes: int) -> Any:
    return done(cu.cuMemAlloc(megabytes * 1_000_000))


def host(megabytes: int) -> Any:
    return done(cu.cuMemHostAlloc(megabytes * 1_000_000, 0))
