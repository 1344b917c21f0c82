"""Does the CUDA runtime accept the shim, and does it compute what it should?"""

import torch
from say import say, shim_loaded

SIZE = 512

if __name__ == "__main__":
    if not torch.cuda.is_available():
        torch.cuda.init()  # says why not
    generator = torch.Generator().manual_seed(4)
    left, right = (torch.rand(SIZE, SIZE, generator=generator) for _ in range(2))
    product = (left.cuda() @ right.cuda()).cpu()
    worst = float((product - left @ right).abs().max() / product.abs().max())
    say(shim=shim_loaded(), gpu=torch.cuda.get_device_name(0), worst=worst)
