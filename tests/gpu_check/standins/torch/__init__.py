"""As much of PyTorch as the workloads name and no more: a wrong name fails here as there."""

import math
import os
import time
from pathlib import Path
from types import SimpleNamespace

from gpu import Memory
from torch import cuda


def begin_slowly():
    """The first import waits for a text in a file: STANDIN_AFTER is PATH:TEXT; STANDIN_WARM a file
    that tells the first one from the others."""
    if "STANDIN_AFTER" not in os.environ or Path(os.environ["STANDIN_WARM"]).exists():
        return
    path, text = os.environ["STANDIN_AFTER"].rsplit(":", 1)
    while text not in Path(path).read_text():
        time.sleep(0.1)
    Path(os.environ["STANDIN_WARM"]).touch()


begin_slowly()
__version__ = "0.0-stand-in"
IMPORTED_BY = os.getpid()
version = SimpleNamespace(cuda="0.0")

uint8, float32 = SimpleNamespace(itemsize=1), SimpleNamespace(itemsize=4)


class Tensor:
    """Elements that are all the same number."""

    def __init__(self, shape, value, dtype=float32, device="cpu"):
        self.shape, self.value, self.dtype, self.device = tuple(shape), value, dtype, device
        on_gpu = device == "cuda"
        self.memory = Memory(cuda.GPU, self.count() * dtype.itemsize) if on_gpu else None

    def count(self):
        return math.prod(self.shape)

    def like(self, work, shape=None, nanoseconds=0):
        """A new one with the value that `work` gives, now and when it is replayed."""
        out = Tensor(self.shape if shape is None else shape, 0.0, self.dtype, self.device)
        return out.put(work, nanoseconds)

    def put(self, work, nanoseconds=0):
        def run():
            self.value = work()

        if self.device == "cuda":
            cuda.GPU.run(run, max(2000, nanoseconds))
        else:
            run()
        return self

    def cuda(self):
        return Tensor(self.shape, self.value, self.dtype, "cuda")

    def cpu(self):
        cuda.synchronize()
        return Tensor(self.shape, self.value, self.dtype, "cpu")

    def __matmul__(self, other):
        return mm(self, other)

    def __add__(self, other):
        if hasattr(other, "pointing_into"):
            return other.pointing_into(self)
        return self.like(lambda: self.value + number(other))

    def __sub__(self, other):
        return self.like(lambda: self.value - number(other))

    def __mul__(self, other):
        return self.like(lambda: self.value * number(other))

    def __truediv__(self, other):
        return self.like(lambda: self.value / number(other))

    def __getitem__(self, at):
        assert -self.shape[0] <= at < self.shape[0]
        return self.like(lambda: self.value, self.shape[1:])

    def abs(self):
        return self.like(lambda: abs(self.value))

    def max(self):
        return self.like(lambda: self.value, ())

    def sum(self):
        lost = cuda.wrong("fork") and os.getpid() != IMPORTED_BY
        return self.like(lambda: self.value * (self.count() - lost), ())

    def double(self):
        return self

    def copy_(self, other):
        assert self.shape == other.shape
        return self.put(lambda value=other.value: value)

    def zero_(self):
        return self.put(lambda: 0.0)

    def backward(self):
        self.put(lambda: self.value)

    def __float__(self):
        assert self.count() == 1
        return float(self.cpu().value if self.device == "cuda" else self.value)


def number(operand):
    return operand.value if isinstance(operand, Tensor) else operand


class Generator:
    def __init__(self, device="cpu"):
        self.device, self.value = device, 0.5

    def manual_seed(self, seed):
        self.value = 0.25 + seed * 0.37 % 0.5
        return self


def rand(*shape, generator=None, device="cpu"):
    assert generator is None or generator.device == device
    return Tensor(shape, 0.5 if generator is None else generator.value, device=device)


def zeros(*shape, device="cpu"):
    return Tensor(shape, 0.0, device=device)


def ones(*shape, dtype=float32, device="cpu"):
    return Tensor(shape, 1.0, dtype, device)


def full(shape, value, *, dtype, device="cpu"):
    return Tensor(shape, value, dtype, device)


def empty_like(one):
    return Tensor(one.shape, 0.0, one.dtype, one.device)


FLOPS = 8e12


def mm(left, right, *, out=None):
    (rows, inner), (also, columns) = left.shape, right.shape
    assert inner == also
    nanoseconds = int(2 * rows * inner * columns / FLOPS * 1e9)
    if out is None:
        out = Tensor((rows, columns), 0.0, left.dtype, left.device)
    return out.put(lambda: left.value * right.value * inner, nanoseconds)


def tanh(one):
    return one.like(lambda: math.tanh(one.value))


def equal(one, other):
    return one.shape == other.shape and one.cpu().value == other.cpu().value


def allclose(one, other, *, rtol):
    return math.isclose(one.cpu().value, other.cpu().value, rel_tol=rtol)


class Linear:
    def __init__(self, inputs, outputs):
        self.weight = rand(outputs, inputs)

    def __call__(self, given):
        return mm(given, self.weight)


class ReLU:
    weight = None

    def __call__(self, given):
        return given.like(lambda: max(0.0, given.value))


class Sequential:
    def __init__(self, *layers):
        self.layers = layers

    def cuda(self):
        for layer in self.layers:
            layer.weight = layer.weight and layer.weight.cuda()
        return self

    def parameters(self):
        return (layer.weight for layer in self.layers if layer.weight is not None)

    def __call__(self, given):
        for layer in self.layers:
            given = layer(given)
        return given


class Adam:
    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self, *, set_to_none):
        assert set_to_none

    def step(self):
        for one in self.parameters:
            one.put(lambda one=one: one.value)


def mse_loss(given, wanted):
    difference = given - wanted
    return (difference * difference).sum()


nn = SimpleNamespace(
    Linear=Linear,
    ReLU=ReLU,
    Sequential=Sequential,
    functional=SimpleNamespace(mse_loss=mse_loss),
)
optim = SimpleNamespace(Adam=Adam)
