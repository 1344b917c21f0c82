"""The line that belongs over every figure: what it was measured on."""

import os
import platform
from pathlib import Path


def machine_line() -> str:
    """Processor, cores, kernel and Python of this machine."""
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    names = [row.partition(":")[2].strip() for row in rows if row.startswith("model name")]
    processor = names[0] if names else platform.machine()
    return (
        f"{processor}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )
