"""Many processes that say HELLO at the same moment.

Run as `python -m tests.limits.programs.crowd SOCKET COUNT`.

Prints one line of JSON, the list of what each was told, [status, slot]; all of them live until the
program's input ends.
"""

import json
import os
import sys
from pathlib import Path

from tests.limits.programs.hello_client import patient_exchange, tell


def member(path: Path, start: int, told: int, end: int) -> None:
    """One process: waits for the others, says HELLO, waits for the end. Never returns."""
    os.read(start, 1)
    answer = patient_exchange(path)
    os.write(told, json.dumps([answer.status, answer.slot]).encode() + b"\n")
    os.read(end, 1)
    os._exit(0)


def main(path: Path, count: int) -> None:
    start, started = os.pipe()
    told, teller = os.pipe()
    end, ended = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            os.close(started)
            os.close(ended)
            member(path, start, teller, end)
    os.close(started)
    with os.fdopen(told) as lines:
        tell([json.loads(lines.readline()) for _ in range(count)])
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
