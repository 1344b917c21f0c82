"""What tests of graphs behind the shim have in common: the limit, and words for their scripts."""

from typing import Any

from gpumanager.units import MIB
from tests.native.shim_container import Container

LIMIT = 256 * MIB
CLIENT = f"""
import random, threading
from tests.native.programs.shim_client import tell
from tests.native.programs.graph_client import *

LIMIT = {LIMIT}
real = ctypes.CDLL("libvcuda-real.so.1")
shim = ctypes.CDLL("libcuda.so.1")
PHYSICAL = done(cu.cuDeviceGetAttribute(cu.CUdevice_attribute(16), device)) and {16 << 30}

def truth():
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert real.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    return PHYSICAL - left.value

def books():
    left, total = done(cu.cuMemGetInfo())
    assert total == LIMIT
    return LIMIT - left

def right():
    return books() == truth()
"""


async def told(container: Container, script: str) -> dict[str, Any]:
    return await container.run(CLIENT + script)
