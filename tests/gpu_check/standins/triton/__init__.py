"""As much of Triton as the workloads name: a kernel's body runs once, for all elements."""

import math

import torch
from triton import language

__version__ = "0.0-stand-in"
NANOSECONDS_OF_A_BLOCK = 5


def cdiv(size, block):
    return -(-size // block)


class Kernel:
    def __init__(self, body):
        self.body = body

    def __getitem__(self, grid):
        def launch(*words, **constants):
            assert all(blocks > 0 for blocks in grid)
            nanoseconds = 2000 + NANOSECONDS_OF_A_BLOCK * math.prod(grid)
            torch.cuda.GPU.run(lambda: self.body(*words, **constants), nanoseconds)

        return launch


def jit(body):
    assert body.__annotations__["block"] is language.constexpr
    return Kernel(body)
