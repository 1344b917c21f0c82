"""A program whose allocations do not go through the shim: it asks cuGetProcAddress, as a runtime.

unlimited_program.py MIB: holds so much.
"""

import ctypes
import sys
import time


def main() -> None:
    driver, allocate = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    asked = (b"cuMemAlloc", ctypes.byref(allocate), 12050, ctypes.c_uint64(0), None)
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuGetProcAddress_v2(*asked) == 0
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(allocate.value or 0)
    assert call(ctypes.addressof(memory), int(sys.argv[1]) << 20) == 0
    print("holding", flush=True)  # noqa: T201
    time.sleep(600)


main()
