"""Does the CUDA runtime accept this driver? `runtime.py CUDART`: its own calls, by ctypes.

cudaErrorSoftwareValidityNotEstablished (103): the runtime does not believe its driver.
"""

import ctypes
import sys
from pathlib import Path

from say import say, shim_loaded

SIZE = 1 << 20

if __name__ == "__main__":
    runtime = ctypes.CDLL(sys.argv[1])
    count, address, version = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    results = {
        "cudaGetDeviceCount": runtime.cudaGetDeviceCount(ctypes.byref(count)),
        "cudaFree": runtime.cudaFree(None),
        "cudaMalloc": runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(SIZE)),
        "cudaDeviceSynchronize": runtime.cudaDeviceSynchronize(),
    }
    runtime.cudaRuntimeGetVersion(ctypes.byref(version))
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = sorted({line.split(maxsplit=5)[-1] for line in lines if "cuda" in line})
    say(
        shim=shim_loaded(),
        results=results,
        gpus=count.value,
        version=version.value,
        mapped=mapped,
    )
