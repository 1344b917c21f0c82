"""An honest program: holds most of its memory, allocates and frees, and launches all the time.

    honest.py SECONDS HELD_MIB CHURNED_MIB [NAME]: the name is for who looks at the process

Prints what it was refused, and how many kernels it launched.
"""

import ctypes
import sys
import time

import tenant

MIB, KERNEL_NS, AHEAD = 1 << 20, 20_000_000, 4
SPIN = (
    b".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry spin(.param .u64 ns) { ret; }"
)

seconds, held, churned = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
driver = ctypes.CDLL("libcuda.so.1")
launches = 0
refusals: list[int] = []


def check(result: int) -> None:
    if result != 0:
        refusals.append(result)
        tenant.say("refused", result)


context, module, function = (ctypes.c_void_p() for _ in range(3))
check(driver.cuInit(0))
check(driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(driver.cuModuleLoadData(ctypes.byref(module), SPIN))
check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
address = ctypes.c_uint64()
check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(held * MIB)))
length = ctypes.c_uint64(KERNEL_NS)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
ends = time.monotonic() + seconds
while time.monotonic() < ends:
    check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(churned * MIB)))
    for _ in range(AHEAD):
        check(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None))
        launches += 1
    check(driver.cuMemFree_v2(address))
check(driver.cuCtxSynchronize())
tenant.say("ended", "refused", len(refusals), "launches", launches)
