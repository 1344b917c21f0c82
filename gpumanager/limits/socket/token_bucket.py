"""How often one container may ask for something: a token bucket.

Time is passed in, in seconds of any clock that does not run backwards.
"""

from dataclasses import dataclass, field


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
