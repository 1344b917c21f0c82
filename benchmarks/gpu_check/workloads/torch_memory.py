"""Fill the limit with tensors, be refused, and live on; with whichever allocator."""

import time

import torch
from say import say, shim_loaded

PIECE = 64 << 20
MOST = 4096
HELD_SECONDS = 1.0


def fill():
    tensors = []
    try:
        while len(tensors) < MOST:
            tensors.append(torch.ones(PIECE, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return tensors, True
    return tensors, False


def allocator_of():
    """Which one PyTorch took, whatever it was told to. A snapshot is its native allocator's."""
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        return backend
    expandable = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    return "expandable segments" if expandable else backend


def lives_on():
    """Half of it can be had again, in other pieces, and computes."""
    half = torch.cuda.mem_get_info(0)[0] // 8 * 4
    values = torch.full((half // 8,), 2.0, dtype=torch.float32, device="cuda")
    return float(values[-1] * 2) == 4.0


if __name__ == "__main__":
    tensors, refused = fill()
    held, allocator = len(tensors) * PIECE, allocator_of()
    time.sleep(HELD_SECONDS)
    tensors.clear()
    torch.cuda.empty_cache()
    alive = lives_on()
    say(shim=shim_loaded(), held=held, refused=refused, alive=alive, allocator=allocator)
