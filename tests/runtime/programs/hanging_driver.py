"""Ask a driver that hangs for its tenants, print the answer, and end."""

import asyncio
import sys
import threading

from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, NvmlReading
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.processes import Containers, GpuTenants


def never(_: NvmlQuery) -> NvmlReading:
    threading.Event().wait()
    return NvmlReading()


async def main() -> None:
    tenants = GpuTenants(NvmlService(never), Containers(CgroupFiles.here()), 0.01)
    sys.stdout.write(f"{await tenants.pods()}\n")


asyncio.run(main())
