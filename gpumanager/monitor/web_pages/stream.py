"""Server-sent events of the newest state.

What is sent is the newest state, whole, made once however many listen and only if somebody does.
Each reader has its own pace: a slow one misses states and never gets an old one. Their number
is bounded, so that probes and metrics find a free connection.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

KIND: Final = "text/event-stream"
LISTENERS: Final = 8
BEAT_SECONDS: Final = 15.0
"""Something is sent at least so often: a closed connection is noticed, and proxies keep it open."""
BEAT: Final = b": still here\n\n"
GREETING: Final = b"retry: 2000\n\n"
"""Milliseconds until a browser that has lost us asks again."""
FAREWELL_SECONDS: Final = 0.5


class TooManySubscribers(Exception):
    """As many listen as may."""


class Stream:
    """newest: the state as it is now, as text without line ends; empty: there is none yet."""

    def __init__(
        self,
        newest: Callable[[], bytes],
        *,
        most: int = LISTENERS,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self.listeners: set[Subscriber] = set()
        self.beat_seconds = beat_seconds
        self.number = 0
        """Of states so far."""
        self.ended = False
        self._newest = newest
        self._most = most
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self._made: tuple[int, bytes] = (0, b"")

    def tell(self) -> None:
        """Announce a new state."""
        self.number += 1
        self._wake()

    def listen(self) -> "Subscriber":
        """Add a reader, until closed; raises TooManySubscribers."""
        if len(self.listeners) >= self._most or self.ended:
            raise TooManySubscribers
        one = Subscriber(self)
        self.listeners.add(one)
        return one

    async def end(self) -> None:
        """End every stream as a stream ends; cut off a reader that does not take that."""
        self.ended = True
        self._wake()
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while self.listeners:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            return

    def left(self, one: "Subscriber") -> None:
        self.listeners.discard(one)
        self._gone.set()

    def event(self) -> bytes:
        """Return the newest state, as it is sent."""
        if self._made[0] != self.number:
            state = self._newest()
            text = b"id: %d\nevent: look\ndata: %s\n\n" % (self.number, state) if state else b""
            self._made = (self.number, text)
        return self._made[1]

    async def news(self, seen: int) -> bool:
        """Wait for a state after `seen`, or for the end; False: it is time for a sign of life."""
        if self.number > seen or self.ended:
            return True
        try:
            async with asyncio.timeout(self.beat_seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        """Wake all that wait now, and none later."""
        self._news.set()
        self._news = asyncio.Event()


class Subscriber:
    """Pieces of one answer: a greeting, then states as they come, until the stream ends."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._seen = 0
        self._greeted = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        stream = self._stream
        if not self._greeted:
            self._greeted = True
            return GREETING
        if not await stream.news(self._seen):
            return BEAT
        if stream.ended:
            raise StopAsyncIteration
        self._seen = stream.number
        return stream.event()

    async def aclose(self) -> None:
        self._stream.left(self)
