"""A CUDA graph: captured, replayed, and its result compared with the same work done eagerly."""

import torch
from say import say, shim_loaded

SIZE, STEPS, REPLAYS = 256, 20, 50


def steps(values):
    for _ in range(STEPS):
        values = torch.tanh(values @ values) + 0.5
    return values


if __name__ == "__main__":
    given = torch.rand(SIZE, SIZE, device="cuda", generator=torch.Generator("cuda").manual_seed(4))
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        expected = steps(given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = steps(given)
    for _ in range(REPLAYS):
        result.zero_()
        graph.replay()
    torch.cuda.synchronize()
    say(shim=shim_loaded(), same=torch.allclose(result, expected, rtol=1e-3), replays=REPLAYS)
