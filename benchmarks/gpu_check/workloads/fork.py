"""Fork after the import, as servers do: children and parent compute; fork once more afterwards."""

import os
import sys

import torch
from say import say, shim_loaded

CHILDREN = 2


def computes():
    """0 as the exit status of a process in which a sum on the GPU is right, and in which the shim
    is, with a limit."""
    right = float(torch.ones(1000, device="cuda").sum()) == 1000.0
    return 0 if right and shim_loaded() and is_limited() else 1


def is_limited():
    try:
        torch.ones(torch.cuda.mem_get_info(0)[1], dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        return True
    return False


def only_cpu():
    """What a data loader's worker does: no CUDA, and an orderly end."""
    return 0 if float(torch.ones(1000).sum()) == 1000.0 else 1


def in_child(work):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = work()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def statuses(pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


if __name__ == "__main__":
    before = statuses([in_child(computes) for _ in range(CHILDREN)])
    parent = computes()
    after = statuses([in_child(only_cpu) for _ in range(CHILDREN)])
    say(shim=shim_loaded(), children=before, parent=parent, after=after)
