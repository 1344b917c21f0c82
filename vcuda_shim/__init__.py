"""Python's view of the native code: where its products lie, and its layouts through cffi.

`_shim` and `_sim` are the cffi modules; nothing here decides anything.
"""

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent

SHIM_CUDA: Final = _HERE / "lib" / "shim" / "libcuda.so.1"
SHIM_NVML: Final = _HERE / "lib" / "shim" / "libnvidia-ml.so.1"

LINK_CUDA: Final = SHIM_CUDA.with_name("libcuda.so")
LINK_NVML: Final = SHIM_NVML.with_name("libnvidia-ml.so")
"""What programs in a container are linked with: every function by name, jumping into the shim."""

SIMULATED_DRIVER: Final = _HERE / "lib" / "driver"
"""Folder of the simulated driver: `libcuda.so.<version>`, `libnvidia-ml.so.<version>`."""

SIMULATED_DRIVER_13: Final = _HERE / "lib" / "driver-cuda-13"
"""The same of a release that knows CUDA 13."""

SIM_CLOCK: Final = _HERE / "lib" / "clock" / "libsimclock.so"
"""For LD_PRELOAD: the program lives by the page of time that its variable SIM_CLOCK names."""

PROGRAMS: Final = _HERE / "bin"
"""Folder of the small CUDA programs to run in pods."""
