"""Play kernels when told to: `player.py SOCKET ENGINE`, commands and answers as lines of JSON.

    {"do": "calibrate", "micros": 2000}                     → {"size": …, "micros": …}
    {"do": "load", "size": …, "kernels": 10}              → {"shim": …}
    {"do": "play", "settle": 1.0, "seconds": 2.0, "tail": 0.0}  → {"kernels": …, "seconds": …}

A window begins and ends where work is known to be complete, with the queue kept filled over both
ends: what is still queued is not counted.

One engine for PyTorch and one for the bare driver. A unit is what is waited for at a time: so many
kernels, or a step of training; a few units are under way at the same time.
"""

import json
import socket
import sys
import time
from collections import deque

from say import shim_loaded


def engine_of(name):
    if name == "torch":
        from engine_torch import Engine
    else:
        from engine_driver import Engine
    return Engine()


class Player:
    def __init__(self, engine):
        self.engine = engine
        self.kernels = 1

    def calibrate(self, micros):
        size = self.engine.size_for(micros)
        return {"size": size, "micros": self.engine.micros(size)}

    def load(self, size, kernels):
        self.kernels = kernels
        self.engine.load(size, kernels)
        return {"shim": shim_loaded()}

    def play(self, settle, seconds, tail):
        """How much was done between the first completion after `settle` and the first one after
        `seconds` more; goes on for `tail`, as load for others.
        """
        pending, done, begun, played = deque(), 0, None, None
        start = time.monotonic()
        while True:
            pending.append(self.engine.unit())
            if len(pending) < self.engine.ahead:
                continue
            self.engine.wait(pending.popleft())
            now = time.monotonic()
            if begun is None:
                begun = now if now >= start + settle else None
                continue
            done += played is None
            if played is None and now >= begun + seconds:
                played = now - begun
            if played is not None and now >= begun + played + tail:
                break
        self.engine.synchronize()
        return {"kernels": done * self.kernels, "seconds": played}


def main(path, engine):
    player = Player(engine_of(engine))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    with connection, connection.makefile("rw") as stream:
        for line in stream:
            command = json.loads(line)
            answer = getattr(player, command.pop("do"))(**command)
            stream.write(json.dumps(answer) + "\n")
            stream.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
