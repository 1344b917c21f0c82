"""A Triton kernel: compiled for this GPU, launched through Triton's own launcher."""

import torch
import triton
import triton.language as tl
from say import say, shim_loaded

SIZE, BLOCK, TIMES = 1 << 20, 1024, 100


@triton.jit
def add(left, right, out, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    tl.store(out + at, tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside), inside)


if __name__ == "__main__":
    left, right = (torch.rand(SIZE, device="cuda") for _ in range(2))
    out = torch.empty_like(left)
    for _ in range(TIMES):
        add[(triton.cdiv(SIZE, BLOCK),)](left, right, out, SIZE, block=BLOCK)
    torch.cuda.synchronize()
    say(shim=shim_loaded(), same=torch.equal(out, left + right), triton=triton.__version__)
