"""NVML kept open between the questions of one who asks again and again.

A question that fails closes it, so that the next begins anew: the driver may have been updated.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pynvml

from gpumanager.gpu.nvml import NvmlError, ask, if_supported

T = TypeVar("T")


class NvmlSession:
    """Opens NVML at its first question and keeps it open until close(); one thread at a time."""

    def __init__(self) -> None:
        self._open = False

    def answer(self, question: Callable[[], T], doing: str) -> T:
        """Raises NvmlError."""
        try:
            self._begin()
            return ask(question, doing)
        except NvmlError:
            self.close()
            raise

    def close(self) -> None:
        if self._open:
            self._open = False
            if_supported(pynvml.nvmlShutdown, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> None:
        if not self._open:
            ask(pynvml.nvmlInit, "opening NVML")
            self._open = True


def instances(device: Any) -> Iterator[Any]:
    """The MIG devices of a GPU that has them; otherwise the GPU."""
    enabled, _pending = if_supported(partial(pynvml.nvmlDeviceGetMigMode, device), (0, 0))
    if not enabled:
        yield device
        return
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        found = if_supported(
            partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index), None
        )
        if found is not None:
            yield found
