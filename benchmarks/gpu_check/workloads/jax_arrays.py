"""JAX: a product and a compiled function beside Python's own results, a GPU kept busy, and arrays
until XLA is refused or MIB are held: `jax_arrays.py MIB`. Where XLA has a pool, MIB is 0: it may
wait for ten seconds before its pool refuses.
"""

import math
import operator
import sys
import time

import jax
import jax.numpy as jnp
from say import say, shim_loaded

SIDE, FEW = 48, 4
WIDE, MANY = 1 << 22, 64
"""Elements and steps of a kernel that takes longer than its launch. A computation that is queued
has its memory already.
"""

BUSY_SECONDS, BATCH = 0.5, 50
PIECE = 64 << 20
HELD_SECONDS = 1.2
"""The manager measures each second."""

LARGEST_ERROR = 1e-3
NUMBERS = [math.sin(number) for number in range(SIDE * SIDE)]


def steps(values, count, tanh):
    for _ in range(count):
        values = tanh(values) * 1.5
    return values


@jax.jit
def few_steps(values):
    return steps(values, FEW, jnp.tanh)


@jax.jit
def many_steps(values):
    return steps(values, MANY, jnp.tanh)


def worst_error():
    """Of all elements, beside the same in Python."""
    given = jnp.asarray(NUMBERS, dtype=jnp.float32)
    square = given.reshape(SIDE, SIDE)
    rows = [NUMBERS[row * SIDE : (row + 1) * SIDE] for row in range(SIDE)]
    columns = list(zip(*rows, strict=True))
    products = [sum(map(operator.mul, row, col)) for row in rows for col in columns]
    pairs = (
        (few_steps(given), [steps(number, FEW, math.tanh) for number in NUMBERS]),
        (jnp.matmul(square, square, precision="highest").reshape(-1), products),
    )
    return max(
        abs(here - there)
        for result, expected in pairs
        for here, there in zip(result.tolist(), expected, strict=True)
    )


def busy():
    """Seconds, as the host sees them."""
    values = many_steps(jnp.ones(WIDE, dtype=jnp.float32)).block_until_ready()
    begun = time.monotonic()
    while time.monotonic() - begun < BUSY_SECONDS:
        for _ in range(BATCH):
            values = many_steps(values)
        values.block_until_ready()
    return time.monotonic() - begun


def fill(most):
    arrays = []
    try:
        while len(arrays) * PIECE < most:
            arrays.append(jnp.ones(PIECE, dtype=jnp.uint8).block_until_ready())
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return arrays, True
    return arrays, False


if __name__ == "__main__":
    worst, seconds = worst_error(), busy()
    arrays, refused = fill(int(sys.argv[1]) << 20)
    held = len(arrays) * PIECE
    time.sleep(HELD_SECONDS)
    arrays.clear()
    alive = worst_error() < LARGEST_ERROR
    say(
        shim=shim_loaded(),
        worst=worst,
        busy_s=seconds,
        held=held,
        refused=refused,
        alive=alive,
        jax=jax.__version__,
    )
