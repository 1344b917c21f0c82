"""Bounds for what a container can cause as often as it likes: requests, and log lines.

The first log line of a kind is written at once, all later ones are counted, and a line a minute
says how many there were: a container cannot rotate away the lines that tell of real trouble.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SUMMARY_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Kind:
    said_at: float
    level: int
    more: int = 0
    newest: str = ""


@dataclass(slots=True)
class RepeatedLog:
    """Of one source, such as an allocation. Kinds come from the code, never from a caller."""

    log: logging.Logger
    source: str
    clock: Callable[[], float] = time.monotonic
    _kinds: dict[object, _Kind] = field(default_factory=dict)

    def say(self, level: int, kind: object, words: str) -> None:
        known = self._kinds.get(kind)
        if known is not None:
            known.more, known.newest = known.more + 1, words
            return
        self._kinds[kind] = _Kind(self.clock(), level)
        self.log.log(level, "%s: %s", self.source, words)

    def summarize(self, *, after: float = SUMMARY_SECONDS) -> None:
        """What was counted for so long, in one line of each kind; to be called now and then."""
        now = self.clock()
        for kind in self._kinds.values():
            if kind.more and now - kind.said_at >= after:
                self.log.log(
                    kind.level,
                    "%s: %d more in %.0f s, the last: %s",
                    self.source,
                    kind.more,
                    now - kind.said_at,
                    kind.newest,
                )
                kind.said_at, kind.more = now, 0


@dataclass(slots=True)
class TokenBucket:
    """rate: tokens that come in a second; burst: how many it holds, and has at first."""

    rate: float
    burst: float
    _tokens: float = field(init=False)
    _at: float | None = None

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """False, and none is taken, where there are not as many; all of them are always enough."""
        elapsed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._tokens = min(self.burst, self._tokens + self.rate * elapsed)
        wanted = min(tokens, self.burst)
        if wanted > self._tokens:
            return False
        self._tokens -= wanted
        return True
