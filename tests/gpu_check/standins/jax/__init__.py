"""As much of JAX as the workloads name. Without XLA_PYTHON_CLIENT_ALLOCATOR=platform it has a pool:
at its first use it takes three quarters of the GPU's memory, or a tenth less as often as need be.
"""

import functools
import os

from gpu import Gpu, Memory

__version__ = "0.0-stand-in"
POOLED = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR") != "platform"
OPERATIONS_OF_A_NANOSECOND = 1000

assert os.environ["JAX_PLATFORMS"] == "cuda"


def refusal(message):
    return RuntimeError(f"RESOURCE_EXHAUSTED: {message}")


GPU = Gpu(refusal)
POOL = []
compiling = []


def memory(size):
    """Of a result; what a compiled function has in between is in registers."""
    if compiling:
        return None
    if not POOLED:
        return Memory(GPU, size)
    wanted = GPU.driver.memory()[1] * 3 // 4
    while not POOL:
        try:
            POOL.append(GPU.allocate(wanted))
        except RuntimeError:
            wanted = wanted * 9 // 10
    return None


def launch(operations):
    """A kernel of its own, or a part of the one that is being compiled."""
    if compiling:
        compiling[-1] += operations
    else:
        GPU.run(lambda: None, 2000 + operations // OPERATIONS_OF_A_NANOSECOND)


def jit(function):
    """What it computes is one kernel."""

    @functools.wraps(function)
    def compiled(values):
        compiling.append(0)
        try:
            result = function(values)
        finally:
            operations = compiling.pop()
        launch(operations)
        return result.materialize()

    return compiled
