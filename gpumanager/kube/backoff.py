"""How often something is tried: backoff with jitter, and a rate limit. Pure."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Backoff:
    """first, most: seconds. failures: how often it failed in a row."""

    first: float = 1.0
    most: float = 60.0
    failures: int = 0

    def failed(self) -> "Backoff":
        return replace(self, failures=self.failures + 1)

    def pause(self, luck: float) -> float:
        """Return seconds until the next attempt. luck: random from 0 to 1, so that nodes spread."""
        if not self.failures:
            return 0.0
        whole = min(self.most, self.first * 2.0 ** min(self.failures - 1, 32))
        return whole * (0.5 + luck / 2)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `burst` at once and one each `seconds` after that. spent: of the burst, at `at`."""

    burst: int = 5
    seconds: float = 10.0
    spent: float = 0.0
    at: float = 0.0

    def take(self, now: float) -> "RateLimit | None":
        """Return the limit after one more; None if it has to wait."""
        spent = max(0.0, self.spent - (now - self.at) / self.seconds)
        if spent + 1 > self.burst:
            return None
        return RateLimit(self.burst, self.seconds, spent + 1, now)
