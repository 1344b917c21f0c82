"""torch.profiler, which sees kernels through CUPTI: how many, and for how long."""

import torch
from say import say, shim_loaded
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

WIDE, COUNT = 2048, 20

if __name__ == "__main__":
    left, right = (torch.rand(WIDE, WIDE, device="cuda") for _ in range(2))
    torch.mm(left, right)  # what a first one brings along is not counted
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(COUNT):
            torch.mm(left, right)
        torch.cuda.synchronize()
    kernels = [event for event in profiled.events() if event.device_type == DeviceType.CUDA]
    micros = sum(event.time_range.elapsed_us() for event in kernels)
    say(shim=shim_loaded(), kernels=len(kernels), micros=micros)
