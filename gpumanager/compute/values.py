"""What the decisions about GPU time have in common. Times are ns of CLOCK_MONOTONIC."""

from typing import Final

SECOND: Final = 1_000_000_000

Holder = tuple[str, int]
"""A container on one of its GPUs: the name of its allocation, and the place of the GPU in it."""
