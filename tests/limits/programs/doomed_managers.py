"""A program whose children are managers that are killed at a call of their choice.

`doomed_managers NAME` obeys one line after another. `open AT ROOT`: a manager begins
there and is killed just before the AT-th call out of Python that it makes; what is said is `killed`
or `done`. `serve AT ROOT`: the same, counted from when it serves; what is said is `ready`. `end`:
that one is gone. Each is a fork of this process, which has no threads: in a fork of one that has,
a lock may be held by nobody.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import vcuda_shim._arbiter  # noqa: F401 - once for all forks
from gpumanager.ids import AllocationID
from tests.limits.open_door import virtual_manager
from tests.limits.programs.manager_process import LIMIT

TRACED = ("gpumanager/limits/", "/pathlib.py", "/socket.py")


def die_before_call(number: int) -> None:
    """From now on, be killed just before the n-th call out of Python that the manager makes."""
    left = number

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if event == "c_call" and any(name in frame.f_code.co_filename for name in TRACED):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


async def open_one(name: AllocationID, at: int, root: Path) -> None:
    die_before_call(at)
    await virtual_manager(root).open(name, [LIMIT])


async def serve_one(name: AllocationID, at: int, root: Path) -> None:
    await virtual_manager(root).open(name, [LIMIT])
    die_before_call(at)
    os.write(1, b"ready\n")
    await asyncio.sleep(600)


def forked(name: AllocationID, word: str, at: int, root: Path) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            asyncio.run((open_one if word == "open" else serve_one)(name, at, root))
            status = 0
        finally:
            os._exit(status)
    return pid


def end(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "ended"


def outcome(pid: int) -> str:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {0: "done", -signal.SIGKILL: "killed"}.get(status, f"status {status}")


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def main(name: AllocationID) -> None:
    serving = 0
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "end":
            say(end(serving))
            continue
        pid = forked(name, word, int(rest[0]), Path(rest[1]))
        if word == "open":
            say(outcome(pid))
        else:
            serving = pid


if __name__ == "__main__":
    main(AllocationID(sys.argv[1]))
