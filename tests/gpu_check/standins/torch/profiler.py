"""torch.profiler: the kernels that are launched while it is at work."""

import contextlib
from enum import Enum
from types import SimpleNamespace

from say import shim_loaded
from torch import cuda
from torch.autograd import DeviceType

ProfilerActivity = Enum("ProfilerActivity", ("CPU", "CUDA"))


@contextlib.contextmanager
def profile(*, activities):
    assert ProfilerActivity.CUDA in activities
    times, run = [], cuda.GPU.run

    def seen(work, nanoseconds=2000):
        times.append(nanoseconds / 1000)
        run(work, nanoseconds)

    def events():
        lost = cuda.wrong("profiler") and shim_loaded()
        return [event(micros) for micros in times[lost:]]

    cuda.GPU.run = seen
    yield SimpleNamespace(events=events)
    cuda.GPU.run = run


def event(micros):
    time_range = SimpleNamespace(elapsed_us=lambda: micros)
    return SimpleNamespace(device_type=DeviceType.CUDA, time_range=time_range)
