"""How long callers of a server may take, how much they may say, and how many there may be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """body: bytes of one request. bodies: bytes of all that are read at once. Seconds: for a
    handshake and the first request of a connection to come, for a body, for an answer to be taken,
    for a connection to do nothing; and, when the server stops, for what is being answered.

    Idle connections stay longer than Go's clients keep them, 90 s: a server that closes first may
    meet a request that is on its way, and a POST is not sent again.
    """

    body: int = 16 << 20
    bodies: int = 64 << 20
    connections: int = 256
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    answer_seconds: float = 10.0
    idle_seconds: float = 180.0
    grace_seconds: float = 5.0


class Bodies:
    """Bytes that are kept for the bodies now being read or answered."""

    def __init__(self, most: int) -> None:
        self.held = 0
        self._most = most

    def take(self, count: int) -> bool:
        """Whether there is room for so many more."""
        if self.held + count > self._most:
            return False
        self.held += count
        return True

    def give_back(self, count: int) -> None:
        self.held -= count
