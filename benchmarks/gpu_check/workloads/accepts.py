"""Does PyTorch accept the shim, and does it compute what it should? `accepts.py MIB`: then it keeps
the GPU busy for half a second, and fills its memory until it is refused, or holds MIB.
"""

import sys
import time

import torch
from say import say, shim_loaded

SIZE, WIDE = 512, 2048
BUSY_SECONDS, HELD_SECONDS = 0.5, 1.2
"""The manager measures each second."""
PIECE = 64 << 20
OUT_OF_MEMORY = 2


def error_of_a_product():
    """The worst relative one, beside the CPU's."""
    generator = torch.Generator().manual_seed(4)
    left, right = (torch.rand(SIZE, SIZE, generator=generator) for _ in range(2))
    product = (left.cuda() @ right.cuda()).cpu()
    return float((product - left @ right).abs().max() / product.abs().max())


def multiply(count):
    """Seconds for so many products, as the host sees them."""
    left, right = (torch.rand(WIDE, WIDE, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    begun = time.monotonic()
    for _ in range(count):
        torch.mm(left, right)
    torch.cuda.synchronize()
    return time.monotonic() - begun


def fill(most):
    tensors = []
    try:
        while len(tensors) * PIECE < most:
            tensors.append(torch.ones(PIECE, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return tensors, OUT_OF_MEMORY
    return tensors, 0


def main(mib):
    begun = time.monotonic()
    if not torch.cuda.is_available():
        torch.cuda.init()  # says why not
    torch.zeros(1, device="cuda")
    free = [torch.cuda.mem_get_info(0)[0]]
    started = time.monotonic() - begun
    worst = error_of_a_product()
    free.append(torch.cuda.mem_get_info(0)[0])
    multiply(1)  # which loads what multiplies
    busy = multiply(1 + int(BUSY_SECONDS / multiply(1)))
    time.sleep(HELD_SECONDS)
    free.append(torch.cuda.mem_get_info(0)[0])
    tensors, refused = fill(int(mib) << 20)
    held = len(tensors) * PIECE
    time.sleep(HELD_SECONDS)
    say(
        shim=shim_loaded(),
        gpu=torch.cuda.get_device_name(0),
        worst=worst,
        busy_s=busy,
        held=held,
        refused=refused,
        started_s=started,
        free=dict(zip(("context", "product", "measured"), free, strict=True)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
