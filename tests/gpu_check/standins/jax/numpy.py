"""jax.numpy: the elements of a small array, and one number for all of a large one."""

import math
import operator
from types import SimpleNamespace

import jax

float32, uint8 = SimpleNamespace(itemsize=4), SimpleNamespace(itemsize=1)


class Array:
    def __init__(self, values, count, dtype=float32):
        self.values, self.count, self.dtype = values, count, dtype
        self.materialize()

    def materialize(self):
        self.memory = jax.memory(self.count * self.dtype.itemsize)
        return self

    def each(self, work):
        jax.launch(self.count)
        return Array([work(value) for value in self.values], self.count, self.dtype)

    def __mul__(self, number):
        return self.each(lambda value: value * number)

    def reshape(self, *shape):
        assert shape == (-1,) or math.prod(shape) == self.count
        return self

    def block_until_ready(self):
        jax.GPU.driver.synchronize()
        return self

    def tolist(self):
        self.block_until_ready()
        return self.values


def asarray(values, *, dtype):
    return Array(list(values), len(values), dtype)


def ones(count, *, dtype):
    return Array([1], count, dtype)


def tanh(values):
    return values.each(math.tanh)


def matmul(left, right, *, precision):
    assert precision == "highest"
    side = math.isqrt(left.count)
    rows = [left.values[at : at + side] for at in range(0, left.count, side)]
    columns = [right.values[at::side] for at in range(side)]
    jax.launch(left.count)
    products = [sum(map(operator.mul, row, col)) for row in rows for col in columns]
    return Array(products, left.count)
