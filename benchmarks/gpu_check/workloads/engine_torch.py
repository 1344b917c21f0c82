"""Matrix products of 32-bit numbers through PyTorch; as `steps`, training of a small network."""

import torch

WARM = 3
SMALLEST, LARGEST = 64, 16384
WIDTH, LAYERS, BATCH = 1024, 8, 256


class Engine:
    """A kernel's size is the side of its matrices."""

    def __init__(self):
        torch.zeros(1, device="cuda")
        self._operands = ()
        self._kernels = 1
        self._unit = self._products
        self._graph = None

    def size_for(self, micros):
        """The side of a product that takes about so long; time grows with its third power."""
        size = 2048
        for _ in range(4):
            wanted = size * (micros / self.micros(size)) ** (1 / 3)
            size = max(SMALLEST, min(LARGEST, round(wanted / 32) * 32))
        return size

    def micros(self, size):
        """How long one takes, queued behind others."""
        self.load(size, "async", 1)
        count = max(3, min(200, int(2e9 / size**2.5)))
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(WARM):
            self._products()
        before.record()
        for _ in range(count):
            self._products()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) * 1000 / count

    def load(self, size, pattern, kernels):
        self._graph, self._operands = None, ()
        torch.cuda.empty_cache()
        self._kernels = kernels
        if pattern == "steps":
            self._unit = trainer()
            return
        left, right = (torch.rand(size, size, device="cuda") for _ in range(2))
        self._operands = left, right, torch.empty_like(left)
        self._unit = self._products
        for _ in range(WARM):
            self._products()
        if pattern == "graph":
            self._capture()

    def unit(self):
        """Launch one; what to wait for."""
        self._unit()
        event = torch.cuda.Event()
        event.record()
        return event

    def wait(self, event):
        event.synchronize()

    def synchronize(self):
        torch.cuda.synchronize()

    def _products(self):
        left, right, out = self._operands
        for _ in range(self._kernels):
            torch.mm(left, right, out=out)

    def _capture(self):
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._products()
        self._unit = self._graph.replay


def trainer():
    """One step of training, some hundred launches of small kernels."""
    layers = [
        layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
    ]
    network = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(network.parameters())
    given, wanted = (torch.rand(BATCH, WIDTH, device="cuda") for _ in range(2))

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(network(given), wanted).backward()
        optimizer.step()

    return step
