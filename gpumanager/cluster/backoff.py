"""How long to wait before the next attempt: longer each time, and each node by chance. Pure."""

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
        """Seconds until the next attempt. luck: from 0 to 1, by chance, so that nodes spread."""
        if not self.failures:
            return 0.0
        whole = min(self.most, self.first * 2.0 ** min(self.failures - 1, 32))
        return whole * (0.5 + luck / 2)
