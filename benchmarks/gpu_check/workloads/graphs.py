"""A CUDA graph: captured, replayed on other inputs, each result compared with the CPU's."""

import math
import time

import torch
from say import say, shim_loaded

SIZE, STEPS, REPLAYS, BATCH = 256, 20, 5, 200
BUSY_SECONDS = 0.5


def steps(values, matrix):
    for _ in range(STEPS):
        values = torch.tanh(matrix @ values) + values
    return values


def inputs(number):
    return torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(number))


def error_of(result, number, matrix):
    """Relative, beside the same in float64."""
    expected = steps(inputs(number).double(), matrix.double())
    return float((result.cpu().double() - expected).abs().max() / expected.abs().max())


if __name__ == "__main__":
    # Its norm is far below 1, so that float32 stays near float64 for all steps.
    matrix = (inputs(99) - 0.5) / 64
    given, on_gpu = inputs(0).cuda(), matrix.cuda()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        steps(given, on_gpu)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = steps(given, on_gpu)
    errors = []
    for number in range(1, REPLAYS + 1):
        given.copy_(inputs(number))
        result.zero_()
        graph.replay()
        errors.append(error_of(result, number, matrix))
    torch.cuda.synchronize()
    begun, replays = time.monotonic(), 0
    while time.monotonic() - begun < BUSY_SECONDS:
        for _ in range(BATCH):
            graph.replay()
        torch.cuda.synchronize()
        replays += BATCH
    busy = time.monotonic() - begun
    worst = max(errors) if min(errors) >= 0 else math.nan  # a NaN is less than nothing
    say(shim=shim_loaded(), worst=worst, replays=replays, busy_s=busy)
