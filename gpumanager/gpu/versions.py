"""The version of CUDA that the loaded driver knows, as NVML tells it."""

import asyncio
from typing import Final

import pynvml

from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_session import NvmlSession

SECONDS: Final = 5.0
"""A driver that is in trouble may not answer at all."""


async def cuda_version(seconds: float = SECONDS) -> str:
    """The newest CUDA that the driver knows, `12.5`; empty where NVML does not say in time."""
    try:
        async with asyncio.timeout(seconds):
            number = await asyncio.to_thread(_ask)
    except (NvmlError, TimeoutError):
        return ""
    return f"{number // 1000}.{number % 1000 // 10}"


def _ask() -> int:
    with NvmlSession() as session:
        doing = "asking for the CUDA version"
        return int(session.answer(pynvml.nvmlSystemGetCudaDriverVersion_v2, doing))
