"""How often the driver may be asked: NVML takes locks that programs on the GPU wait for, too."""

from typing import Final

MOST_OF_TIME: Final = 0.01
"""How much of the time one that asks again and again may spend in the driver."""
LONGEST_SECONDS: Final = 5.0


def poll_interval(seconds: float, cost: float, longest: float = LONGEST_SECONDS) -> float:
    """How long to wait after a question that took `cost`, where `seconds` would do."""
    return min(max(seconds, cost / MOST_OF_TIME), max(seconds, longest))
