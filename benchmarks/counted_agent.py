"""The agent, with a line in a file for each of its calls to NVML: thread, function, CPU time in ns.

    python benchmarks/counted_agent.py FILE agent FLAGS…

`instead` starts it in the place of a simulated node's agent.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pynvml

from gpumanager.cli import main
from gpumanager.sim.agent import AgentProcess

LIBRARY: Final = (
    "nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleBy", "nvmlDeviceGetUUID",
    "nvmlEventSet", "nvmlErrorString",
)  # fmt: skip


def count_in(file: Path) -> None:
    """Every call from now on."""
    lookup = pynvml._nvmlGetFunctionPointer  # noqa: SLF001 - all of pynvml's functions go by it
    out = file.open("a", buffering=1)

    def counted(name: str) -> Any:
        function = lookup(name)

        def call(*arguments: Any) -> Any:
            begun = time.thread_time_ns()
            try:
                return function(*arguments)
            finally:
                taken = time.thread_time_ns() - begun
                out.write(f"{threading.current_thread().name} {name} {taken}\n")

        return call

    pynvml._nvmlGetFunctionPointer = counted  # noqa: SLF001


@contextmanager
def instead(file: Path) -> Iterator[None]:
    """Agents of simulated nodes that start meanwhile are counted in this file."""
    ours = AgentProcess.command

    def command(self: AgentProcess, kubelet_endpoint: str) -> list[str]:
        words = ours(self, kubelet_endpoint)
        at = words.index("gpumanager")
        return [*words[: at - 1], __file__, str(file), *words[at + 1 :]]

    AgentProcess.command = command  # type: ignore[method-assign]
    try:
        yield
    finally:
        AgentProcess.command = ours  # type: ignore[method-assign]


def asks_driver(function: str) -> bool:
    """Return whether the library has to ask the driver for it, and does not wait for events."""
    return not function.startswith(LIBRARY)


def told(file: Path) -> list[tuple[str, str, int]]:
    """Thread, function and ns of each call so far."""
    rows = [line.rsplit(" ", 2) for line in file.read_text().splitlines()]
    return [(thread, name, int(taken)) for thread, name, taken in rows]


if __name__ == "__main__":
    count_in(Path(sys.argv.pop(1)))
    main()
