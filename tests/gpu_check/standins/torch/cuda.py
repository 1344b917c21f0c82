"""torch.cuda, as far as the workloads name it."""

import contextlib
import ctypes
import gc
import os
from types import SimpleNamespace

from gpu import Gpu


class OutOfMemoryError(RuntimeError):
    pass


GPU = Gpu(OutOfMemoryError)


def wrong(what):
    """Whether this stand-in is told to be wrong in that."""
    return os.environ.get("STANDIN_WRONG") == what


def is_available():
    return True


def init():
    GPU.driver.synchronize()


def get_device_name(device):
    assert device == 0
    GPU.driver.synchronize()
    return "stand-in"


def get_device_properties(device):
    assert device == 0
    return SimpleNamespace(total_memory=GPU.driver.total())


def mem_get_info(device):
    assert device == 0
    return GPU.driver.memory()


def get_allocator_backend():
    asked = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return "cudaMallocAsync" if "backend:cudaMallocAsync" in asked else "native"


def memory_snapshot():
    if get_allocator_backend() != "native":
        raise RuntimeError("Calling snapshot with another backend is not meaningful")
    asked = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return [{"is_expandable": "expandable_segments:True" in asked}]


def empty_cache():
    gc.collect()
    if get_allocator_backend() == "cudaMallocAsync":
        pool = GPU.driver.get(ctypes.c_void_p, "cuDeviceGetDefaultMemPool", GPU.driver.device)
        GPU.driver.synchronize()
        GPU.driver.call("cuMemPoolTrimTo", pool, ctypes.c_size_t(0))


def synchronize():
    GPU.driver.synchronize()


class Event:
    def __init__(self, *, enable_timing=False):
        self.timed = enable_timing
        self.event = ctypes.c_void_p()
        GPU.driver.call("cuEventCreate", ctypes.byref(self.event), 0 if enable_timing else 2)

    def record(self):
        GPU.driver.call("cuEventRecord", self.event, GPU.stream)

    def synchronize(self):
        GPU.driver.call("cuEventSynchronize", self.event)

    def elapsed_time(self, other):
        assert self.timed
        assert other.timed
        milliseconds = ctypes.c_float()
        out = ctypes.byref(milliseconds)
        GPU.driver.call("cuEventElapsedTime", out, self.event, other.event)
        return milliseconds.value

    def __del__(self):
        GPU.driver.library.cuEventDestroy_v2(self.event)


class Stream:
    def __init__(self, handle=None):
        self.handle = GPU.driver.stream() if handle is None else handle

    def wait_stream(self, other):
        assert isinstance(other, Stream)
        synchronize()


def current_stream():
    return Stream(GPU.stream)


@contextlib.contextmanager
def stream(chosen):
    before, GPU.stream = GPU.stream, chosen.handle
    try:
        yield
    finally:
        GPU.stream = before


class CUDAGraph:
    def __init__(self):
        self.recorded, self.executable = [], None

    def replay(self):
        for work in self.recorded[: -1 if wrong("graph") else None]:
            work()
        GPU.driver.call("cuGraphLaunch", self.executable, GPU.stream)


@contextlib.contextmanager
def graph(made):
    with stream(Stream()):
        done = contextlib.ExitStack()

        def fill():
            GPU.captured = made.recorded
            done.callback(setattr, GPU, "captured", None)

        ending = begin(fill)
        try:
            yield
        finally:
            done.close()
            made.executable = ending()


def begin(fill):
    """Driver.graph() in two parts: what comes in between is captured."""
    driver, captured = GPU.driver, ctypes.c_void_p()
    driver.call("cuStreamBeginCapture_v2", GPU.stream, 2)  # relaxed: tensors are allocated
    fill()

    def end():
        driver.call("cuStreamEndCapture", GPU.stream, ctypes.byref(captured))
        executable = ctypes.c_void_p()
        out = ctypes.byref(executable)
        driver.call("cuGraphInstantiateWithFlags", out, captured, ctypes.c_ulonglong(0))
        return executable

    return end
