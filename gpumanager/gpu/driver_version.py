"""Which driver is loaded, as NVML tells."""

import asyncio
from dataclasses import dataclass
from typing import Final

import pynvml

from gpumanager.gpu.daemon_thread import DaemonThreadExecutor
from gpumanager.gpu.nvml import NvmlError, ask, driver, text

SECONDS: Final = 5.0
"""A driver that is in trouble may not answer at all."""

_MAJOR = 1000
_MINOR = 10


@dataclass(frozen=True, slots=True)
class LoadedDriver:
    """version: `555.58.02`, the kernel module's. cuda: `12.5`, the newest that it can run."""

    version: str
    cuda: str


def loaded_driver() -> LoadedDriver:
    """Raises NvmlError."""
    with driver():
        cuda = int(ask(pynvml.nvmlSystemGetCudaDriverVersion, "asking for CUDA's version"))
        return LoadedDriver(
            version=text(ask(pynvml.nvmlSystemGetDriverVersion, "asking for the driver's version")),
            cuda=f"{cuda // _MAJOR}.{cuda % _MAJOR // _MINOR}",
        )


async def cuda_version(seconds: float = SECONDS) -> str:
    """The newest CUDA that the driver knows, `12.5`; empty where NVML does not say in time."""
    thread = DaemonThreadExecutor("driver version")
    try:
        async with asyncio.timeout(seconds):
            found = await asyncio.get_running_loop().run_in_executor(thread, loaded_driver)
    except (NvmlError, TimeoutError):
        return ""
    finally:
        thread.shutdown()
    return found.cuda
