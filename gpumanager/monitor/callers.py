"""Connections of the agent's HTTP server: how many there may be, and which gives way to the next.

A caller is first awaited (it has to ask), then served (we have to answer), then slow or not in
taking its answer. Those whom we wait for give way in a crowd, the oldest first: an honest caller
asks at once and takes at once. Example: 2,000 connections that say nothing are 128 at a time; a
probe that comes among them is older than none of them when its request is read.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

ASKING: Final = 128
CONNECTIONS: Final = 32

Caller = asyncio.StreamWriter


@dataclass(slots=True)
class Callers:
    """asking: how many may be awaited at once. served: how many may be answered at once."""

    asking: int = ASKING
    served: int = CONNECTIONS
    _tasks: dict[Caller, asyncio.Task[None]] = field(default_factory=dict)
    _awaited: dict[Caller, None] = field(default_factory=dict)
    """In the order in which they came."""
    _making: set[Caller] = field(default_factory=set)
    """Whose answers are being made: it is us who are slow."""
    _taking: dict[Caller, None] = field(default_factory=dict)
    """In the order in which they were given something last."""

    def __len__(self) -> int:
        return len(self._tasks)

    def come(self, caller: Caller, task: asyncio.Task[None]) -> None:
        """Until its task ends. The one that has been awaited longest may give way to it."""
        if len(self._awaited) >= self.asking:
            self._let_go(next(iter(self._awaited)))
        self._tasks[caller] = task
        self._awaited[caller] = None
        task.add_done_callback(lambda _: self._left(caller))

    def asked(self, caller: Caller) -> bool:
        """Whether there is room for its answer, made by letting go of those who take theirs."""
        del self._awaited[caller]
        while len(self._making) + len(self._taking) >= self.served:
            if not self._taking:
                return False
            self._let_go(next(iter(self._taking)))
        self._making.add(caller)
        return True

    def given(self, caller: Caller) -> None:
        """It has something to take, from now on."""
        self._forget(caller)
        self._taking[caller] = None

    async def end(self) -> None:
        """Let go of everybody; returns when they are gone."""
        tasks = dict(self._tasks)
        for caller in tasks:
            self._let_go(caller)
        closed = (caller.wait_closed() for caller in tasks)
        await asyncio.gather(*tasks.values(), *closed, return_exceptions=True)

    def _let_go(self, caller: Caller) -> None:
        self._forget(caller)
        caller.transport.abort()
        self._tasks[caller].cancel()

    def _left(self, caller: Caller) -> None:
        self._forget(caller)
        del self._tasks[caller]

    def _forget(self, caller: Caller) -> None:
        self._awaited.pop(caller, None)
        self._making.discard(caller)
        self._taking.pop(caller, None)
