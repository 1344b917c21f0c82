"""The agent, with a line in a file for each of its calls to NVML: the thread and the function.

    python benchmarks/counted_agent.py FILE agent FLAGS…

For `nvml_calls.py`.
"""

import sys
import threading
from pathlib import Path
from typing import Any

import pynvml

from gpumanager.cli import main


def count_in(file: Path) -> None:
    """Every call from now on."""
    lookup = pynvml._nvmlGetFunctionPointer  # noqa: SLF001 - all of pynvml's functions go by it
    out = file.open("a", buffering=1)

    def counted(name: str) -> Any:
        function = lookup(name)

        def call(*arguments: Any) -> Any:
            out.write(f"{threading.current_thread().name} {name}\n")
            return function(*arguments)

        return call

    pynvml._nvmlGetFunctionPointer = counted  # noqa: SLF001


if __name__ == "__main__":
    count_in(Path(sys.argv.pop(1)))
    main()
