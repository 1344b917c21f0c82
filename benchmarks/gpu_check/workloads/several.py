"""Several processes of one container fill its limit together, and hold it until all are refused."""

import sys
import time

import torch
import torch.multiprocessing as processes
from say import say, shim_loaded

COUNT = 3
PIECE = 64 << 20
HELD_SECONDS = 1.0
PATIENCE = 60


def fill(everybody, results):
    torch.ones(1, device="cuda")
    everybody.wait(PATIENCE)
    tensors, refused = [], False
    try:
        while len(tensors) < (1 << 12):
            tensors.append(torch.ones(PIECE, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        refused = True
    everybody.wait(PATIENCE)
    time.sleep(HELD_SECONDS)
    results.put((len(tensors) * PIECE, refused, shim_loaded()))


def main():
    spawn = processes.get_context("spawn")
    everybody, results = spawn.Barrier(COUNT), spawn.Queue()
    started = [spawn.Process(target=fill, args=(everybody, results)) for _ in range(COUNT)]
    for process in started:
        process.start()
    told = [results.get(timeout=2 * PATIENCE) for _ in started]
    for process in started:
        process.join()
    say(
        shim=all(shim for _, _, shim in told),
        held=[held for held, _, _ in told],
        refused=all(refused for _, refused, _ in told),
        alive=all(process.exitcode == 0 for process in started),
    )


if __name__ == "__main__":
    sys.exit(main())
