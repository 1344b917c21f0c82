"""How a workload tells what it saw: one line of JSON; and whether the shim is in it at all."""

import json
from pathlib import Path


def say(**seen: object) -> None:
    print(json.dumps(seen), flush=True)


def shim_loaded() -> bool:
    """Whether libvcuda-shim is mapped: a check of a program that found another way to the driver
    would be no check.
    """
    return "libvcuda-shim-" in Path("/proc/self/maps").read_text()
