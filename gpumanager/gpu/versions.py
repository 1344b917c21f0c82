"""The versions of the driver that is loaded, as NVML tells them."""

import pynvml

from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_session import NvmlSession


def cuda_version() -> str:
    """The newest CUDA that the driver knows, `12.5`; empty where NVML does not say."""
    try:
        with NvmlSession() as session:
            doing = "asking for the CUDA version"
            number = session.answer(pynvml.nvmlSystemGetCudaDriverVersion_v2, doing)
    except NvmlError:
        return ""
    return f"{number // 1000}.{number % 1000 // 10}"
