"""Ask a driver that hangs for its tenants, print the answer, and end."""

import asyncio
import sys
import threading
from collections.abc import Mapping

from gpumanager.gpu.values import GpuUUID
from gpumanager.runtime.cgroup_files import CgroupFiles
from gpumanager.runtime.processes import Containers
from gpumanager.runtime.tenants import GpuTenants


def never() -> Mapping[GpuUUID, Mapping[int, object]]:
    threading.Event().wait()
    return {}


tenants = GpuTenants(never, Containers(CgroupFiles.here()), 0.01)
sys.stdout.write(f"{asyncio.run(tenants.pods())}\n")
