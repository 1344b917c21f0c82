"""A driver between the shim and the simulated one that counts what it is asked for.

Every function of the shim's table, and the few more that a program needs to begin, passes its call
on; `counts` of the library tells how often each was called. For what the shim costs the launching
thread: calls of the driver are nearly all of it.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from driver_libraries import lay_out

from tests.native.shim_container import INCLUDE
from tests.native.table.hook_table import TABLE, load
from vcuda_shim import SIMULATED_DRIVER

COST_US: Final[Mapping[str, float]] = {
    "cuEventRecord": 2.5,
    "cuEventQuery": 1.0,
    "cuStreamQuery": 1.0,
    "cuEventCreate": 1.0,
    "cuEventDestroy_v2": 1.0,
    "cuStreamIsCapturing": 0.1,
    "cuThreadExchangeStreamCaptureMode": 0.1,
    "cuCtxGetCurrent": 0.1,
    "cuCtxGetId": 0.1,
    "cuCtxGetDevice": 0.1,
}
"""What a call takes of a real driver. cuEventRecord: 400,000 a second with timing, by the benchmark
of NVIDIA/NVTX#3. Those that ask the GPU's memory or the driver's lists: of the same order, taken as
1 us. Those that read a word of the thread's or the context's own: not published, taken as 0.1 us.
"""

PREFACE = """
#include "cuda_types.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

static void *find(const char *name)
{
    return dlsym(dlopen(getenv("COUNTED_DRIVER"), RTLD_NOW), name);
}

const void *vcudaSimulatedWorld(void)
{
    return ((const void *(*)(void))find("vcudaSimulatedWorld"))();
}
"""
MORE: Final = (
    ("cuDeviceGet", "CUdevice *device, int ordinal", "device, ordinal"),
    ("cuModuleGetFunction", "CUfunction *f, CUmodule m, const char *name", "f, m, name"),
)


def _counted(symbol: str, signature: str, arguments: str) -> str:
    return f"""
atomic_ulong counted_{symbol};
CUresult {symbol}({signature})
{{
    static CUresult (*real_entry)({signature});
    if (real_entry == NULL)
        real_entry = find("{symbol}");
    counted_{symbol}++;
    return real_entry == NULL ? CUDA_ERROR_NOT_FOUND : real_entry({arguments});
}}
"""


def counted_libraries(folder: Path) -> Path:
    """For a container's library path: the shim in front of the driver that counts."""
    rows = load("generate").parse_table(TABLE / "cuda.hooks")
    table = [(row.symbol, row.signature, ", ".join(row.arguments)) for row in rows]
    known = {symbol for symbol, _signature, _arguments in table}
    more = [one for one in MORE if one[0] not in known]
    source, cuda = folder / "counted.c", folder / "libcuda.so.1.0"
    source.write_text(PREFACE + "".join(_counted(*one) for one in [*table, *more]))
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", f"-I{INCLUDE}", "-Wall", "-Werror"]
    binding = ["-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1", "-ldl"]
    command = ["gcc", *flags, "-o", str(cuda), str(source), *binding]
    subprocess.run(command, check=True, timeout=300)
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    return lay_out(folder / "lib", cuda, nvml)


def counted_environment() -> Mapping[str, str]:
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    return {"COUNTED_DRIVER": str(cuda)}


COUNTS: Final = f"""
def counts():
    driver = ctypes.CDLL("libvcuda-real.so.1")
    return {{name: ctypes.c_ulong.in_dll(driver, f"counted_{{name}}").value
            for name in {[*COST_US, "cuLaunchKernel"]!r}}}
"""
"""For a program in the container: how often each function was called so far."""


def cost_us(counts: Mapping[str, int]) -> float:
    """What the shim's own calls took, on a real driver."""
    return sum(count * COST_US[name] for name, count in counts.items() if name in COST_US)
