"""Training of a network through PyTorch: some hundred launches of many kinds of kernels a step."""

import torch

LAYERS = 8


class Engine:
    """A unit is a step. Its size is the network's width: at 1024 the host is what it waits for, at
    4096 the GPU.
    """

    ahead = 2

    def __init__(self):
        torch.zeros(1, device="cuda")
        self._step = None

    def load(self, size, kernels):
        del kernels
        self._step = trainer(size, size // 2)

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


def trainer(width, batch):
    layers = [
        layer for _ in range(LAYERS) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())
    ]
    network = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(network.parameters())
    given, wanted = (torch.rand(batch, width, device="cuda") for _ in range(2))

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(network(given), wanted).backward()
        optimizer.step()

    return step
