"""The CUDA driver API by ctypes: as much of it as the workloads here need.

For any Python from 3.8 on, without a package; `libcuda.so.1` is whatever the loader finds.
"""

import ctypes
import ctypes.util

SUCCESS, OUT_OF_MEMORY = 0, 2
NEWEST_TARGET = (8, 0)
"""What PTX 7.0 can name; a driver compiles it for every GPU that came later."""

MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _COMPUTE_CAPABILITY_MAJOR, _MINOR."""

DISABLE_TIMING = 2

PTX = """
.version 7.0
.target sm_{}{}
.address_size 64
.visible .entry spin(.param .u64 rounds)
{{
    .reg .u64 %rd<3>;
    .reg .f32 %f<2>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [rounds];
    mov.u64 %rd2, 0;
    mov.f32 %f1, 0f3F800001;
again:
    fma.rn.f32 %f1, %f1, %f1, %f1;
    add.u64 %rd2, %rd2, 1;
    setp.lt.u64 %p1, %rd2, %rd1;
    @%p1 bra again;
    setp.eq.f32 %p2, %f1, 0f00000000;
    @%p2 trap;
    ret;
}}
.visible .entry empty()
{{
    ret;
}}
"""
"""spin: so many rounds of work. A kernel that waits for a time of the GPU's clock ends then even if
another process had the GPU meanwhile, and says nothing of shares. The simulated driver knows the
name, and takes a round for a nanosecond.
"""

THREADS = 128
"""Of each multiprocessor, where a kernel is to keep all of them busy."""


class Failed(Exception):
    """A call of the driver did; number: its CUresult."""

    def __init__(self, what, number):
        super().__init__(f"{what} answers {number}")
        self.number = number


class Driver:
    """Device 0 with its primary context, current in this thread."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device = self.get(ctypes.c_int, "cuDeviceGet", 0)
        context = self.get(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *words):
        result = getattr(self.library, name)(*words)
        if result != SUCCESS:
            raise Failed(name, result)

    def get(self, kind, name, *words):
        """What a function puts where its first parameter points."""
        out = kind()
        self.call(name, ctypes.byref(out), *words)
        return out

    def get_second(self, kind, name, device, *words):
        """The same, of functions whose first parameter is another."""
        out = kind()
        self.call(name, device, ctypes.byref(out), *words)
        return out

    def attribute(self, which):
        return self.get(ctypes.c_int, "cuDeviceGetAttribute", which, self.device).value

    def uuid(self):
        raw = self.get(ctypes.c_ubyte * 16, "cuDeviceGetUuid", self.device)
        digits = bytes(raw).hex()
        parts = (digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        return "GPU-" + "-".join(parts)

    def total(self):
        return self.get(ctypes.c_size_t, "cuDeviceTotalMem_v2", self.device).value

    def memory(self):
        """Bytes that are left, and in all."""
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(total))
        return left.value, total.value

    def allocate(self, size):
        """The address; raises Failed."""
        return self.get(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(size))

    def free(self, address):
        self.call("cuMemFree_v2", address)

    def synchronize(self):
        self.call("cuCtxSynchronize")

    def module(self):
        """The kernels above."""
        have = self.attribute(MAJOR), self.attribute(MINOR)
        text = PTX.format(*min(have, NEWEST_TARGET)).encode()
        return self.get(ctypes.c_void_p, "cuModuleLoadData", text)

    def function(self, module, name):
        return self.get(ctypes.c_void_p, "cuModuleGetFunction", module, name.encode())

    def stream(self):
        return self.get(ctypes.c_void_p, "cuStreamCreate", 1)

    def event(self, flags=DISABLE_TIMING):
        return self.get(ctypes.c_void_p, "cuEventCreate", flags)

    def micros(self, before, after):
        """Between two events that were recorded with timing and have come."""
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
        return milliseconds.value * 1000

    def spin(self, function, rounds, stream, blocks=1, threads=1):
        count = ctypes.c_uint64(rounds)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(count))
        shape = (blocks, 1, 1, threads, 1, 1, 0)
        self.call("cuLaunchKernel", function, *shape, stream, parameters, None)
