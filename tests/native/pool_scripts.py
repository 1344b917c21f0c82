"""What tests of pools behind the shim have in common: scripts that begin with the limit's pools."""

from typing import Any

from one_gpu import LIMIT
from shim_container import Container

from gpumanager.units import MIB

CHUNK = 32 * MIB
BEGIN = f"""
from pool_client import *
pools = LimitedPools({LIMIT})
default = pools.default()
"""


async def told(container: Container, script: str) -> dict[str, Any]:
    return await container.run(BEGIN + script)
