"""What tests of pools behind the shim have in common: scripts that begin with the limit's pools."""

from typing import Any

from gpumanager.units import MIB
from tests.native.gpu_node import LIMIT
from tests.native.shim_container import Container

CHUNK = 32 * MIB
BEGIN = f"""
from tests.native.programs.pool_client import *
pools = LimitedPools({LIMIT})
default = pools.default()
"""


async def told(container: Container, script: str) -> dict[str, Any]:
    return await container.run(BEGIN + script)
