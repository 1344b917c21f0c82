"""Bounds for what a container can cause as often as it likes: descriptors, requests and log lines.

A caller takes a connection, a process that has a slot a pidfd and the connection that it keeps, and
a container may have a thousand of each. So all are bounded for each allocation, and for all
together: what is left is for files, for the kubelet and for everybody else's callers.

The first log line of a kind is written at once, all later ones are counted, and a line a minute
gives their number: a container cannot rotate away the lines that report real trouble.
"""

import logging
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

CALLERS: Final = 64
"""Of one allocation at once, where descriptors abound."""

PIDFDS: Final = 2048

SUMMARY_SECONDS: Final = 60.0


@dataclass(slots=True)
class Descriptors:
    """The bounds of one manager. callers, pidfds: at most, of one allocation; all_callers,
    all_pidfds: of all together.

    Beyond, a caller waits, but for one of each allocation, and a process is polled. Connections
    that processes keep count as pidfds, and take one half of them at most: a process that finds its
    own closed connects again.
    """

    callers: int = CALLERS
    pidfds: int = PIDFDS
    all_callers: int = 64 * CALLERS
    all_pidfds: int = 64 * PIDFDS
    callers_now: int = 0
    pidfds_now: int = 0

    @classmethod
    def allowed(cls) -> Self:
        """Return the bounds for this process's limit.

        Example: of 1,024 descriptors one allocation gets 64 pidfds and 16 callers, all together get
        256 of each; 32 and 128 of the former may be connections.
        """
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most == resource.RLIM_INFINITY:
            return cls()
        return cls(
            callers=max(1, min(CALLERS, most // 64)),
            pidfds=min(PIDFDS, most // 16),
            all_callers=max(1, most // 4),
            all_pidfds=most // 4,
        )

    def may_watch(self, own: int) -> bool:
        """Return whether one more process may have a pidfd, of an allocation that has `own`."""
        return own < self.pidfds and self.pidfds_now < self.all_pidfds

    def may_keep(self, own: int) -> bool:
        """Return whether one more connection may be kept, of an allocation that has `own` of
        both."""
        return own < self.pidfds // 2 and self.pidfds_now < self.all_pidfds // 2

    def may_wait(self, own: int) -> bool:
        """Return whether one more caller may take its time, of an allocation that has `own`."""
        return own < self.callers and (own == 0 or self.callers_now < self.all_callers)


@dataclass(slots=True)
class _Kind:
    said_at: float
    level: int
    more: int = 0
    newest: str = ""


@dataclass(slots=True)
class RepeatedLog:
    """Logs for one source, such as an allocation. Kinds come from the code, never from callers."""

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
        """Log what was counted for so long, a line for each kind; call it periodically."""
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
        """Take tokens; return False, and take none, where there are fewer. A full bucket does."""
        elapsed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._tokens = min(self.burst, self._tokens + self.rate * elapsed)
        wanted = min(tokens, self.burst)
        if wanted > self._tokens:
            return False
        self._tokens -= wanted
        return True
