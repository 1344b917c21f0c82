"""What can go wrong with an API server, in the words of this project's errors."""

from collections.abc import Mapping
from typing import Any, Final

from gpumanager.errors import GpuManagerError

Object = Mapping[str, Any]
"""A Kubernetes object as JSON has it."""

NOT_UNDERSTOOD: Final = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""Raised by reading an object that is not what it should be."""


class ApiUnavailable(GpuManagerError):
    """No answer from the API server, or none that is understood."""


class ApiRefused(GpuManagerError):
    """The API server refused. status: of HTTP. reason: Kubernetes' word for it, `Conflict`.

    retry_after: seconds that it wants us to wait, if it says so.
    """

    def __init__(
        self, what: str, status: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{what}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
