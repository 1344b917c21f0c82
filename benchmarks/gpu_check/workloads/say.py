"""How a workload tells what it saw: one line of JSON; and whether the shim is in it at all."""

import json
import re
from pathlib import Path

SHIM = re.compile("libvcuda-shim-(?!ml-)")
"""Of CUDA: a tool may load NVML's, beside a driver that it found on a way of its own."""


def say(**seen: object) -> None:
    print(json.dumps(seen), flush=True)


def shim_loaded() -> bool:
    """Whether libvcuda-shim is mapped: a check of a program that found another way to the driver
    would be no check.
    """
    return shim_in(Path("/proc/self/maps"))


def shim_in(maps: Path) -> bool:
    return SHIM.search(maps.read_text()) is not None
