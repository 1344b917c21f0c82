"""Connections to the API server that are used again.

A new connection costs more than all else of a small request, most of it its handshake. But a server
may end one that is idle, and what is sent into that has no answer. So connections are kept for
moments: who asks often saves the handshake, who asks seldom connects anew.
"""

import time
from collections.abc import Callable
from typing import Final

from gpumanager.cluster.http import Peer, Stream

IDLE_SECONDS: Final = 3.0
MOST: Final = 8


class Kept:
    """Idle connections, on one loop. Whoever makes it calls `close` when all is done."""

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._idle: list[tuple[Stream, float]] = []
        """With the time until which each is good."""

    def take(self, peer: Peer) -> Stream | None:
        """The one that was used last, if it is still good; others are ended."""
        now, good = self._clock(), []
        for stream, until in self._idle:
            if stream.usable and stream.peer == peer and until > now:
                good.append((stream, until))
            else:
                stream.end()
        self._idle = good
        return good.pop()[0] if good else None

    def put(self, stream: Stream) -> None:
        """Its answer was read to the end, and nothing else was said."""
        if len(self._idle) < self._most and stream.usable:
            self._idle.append((stream, self._clock() + IDLE_SECONDS))
        else:
            stream.end()

    def close(self) -> None:
        for stream, _ in self._idle:
            stream.end()
        self._idle.clear()
