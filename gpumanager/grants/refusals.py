"""No grant: one rule for all code that may not give one.

returned    `Refused`: decided, and final for the caller's request. Its text is for the user
raised      `RetryLater`: not decided now; the kubelet asks again
"""

from dataclasses import dataclass
from typing import Final

from gpumanager.errors import GpuManagerError

ONE_INTERFACE: Final = (
    "each brings limits of its own, and one hides the other; "
    "ask for all GPUs of a container by one claim"
)
"""Why a container gets GPUs by one interface only."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No grant, which is final for the pod; a claim is asked for again.

    text: the reason, for the user. reason: one word, for metrics.
    """

    text: str
    reason: str = ""


class RetryLater(GpuManagerError):
    """No answer now; the caller tries again."""


class NotResolved(RetryLater):
    """The container cannot start now; the kubelet tries again."""
