"""Which driver is loaded, as NVML tells."""

from dataclasses import dataclass

import pynvml

from gpumanager.gpu.nvml import NvmlError, ask, driver, text
from gpumanager.gpu.nvml_service import ANSWER_SECONDS, NvmlService

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


async def cuda_version(nvml: NvmlService, seconds: float = ANSWER_SECONDS) -> str:
    """Return the newest CUDA that the driver knows, `12.5`; empty where NVML does not say in
    time."""
    try:
        return (await nvml.ask(loaded_driver, seconds)).cuda
    except NvmlError:
        return ""
