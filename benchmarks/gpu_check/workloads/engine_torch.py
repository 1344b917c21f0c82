"""Training of a small network through PyTorch: some hundred launches of small kernels a step."""

import torch

WIDTH, LAYERS, BATCH = 1024, 8, 256


class Engine:
    """A unit is a step, whatever its size."""

    ahead = 1

    def __init__(self):
        torch.zeros(1, device="cuda")
        self._step = None

    def load(self, size, kernels):
        del size, kernels
        self._step = trainer()

    def unit(self):
        """Launch one; what to wait for."""
        self._step()
        event = torch.cuda.Event()
        event.record()
        return event

    def wait(self, event):
        event.synchronize()

    def synchronize(self):
        torch.cuda.synchronize()


def trainer():
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
