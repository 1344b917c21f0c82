"""The CUDA driver API by ctypes: as much of it as the workloads here need.

For any Python from 3.8 on, without a package; `libcuda.so.1` is whatever the loader finds.
"""

import ctypes
import ctypes.util

SUCCESS, OUT_OF_MEMORY = 0, 2
NEWEST_TARGET = (8, 0)
"""What PTX 7.0 can name; a driver compiles it for every GPU that came later."""

MAJOR, MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR."""

DISABLE_TIMING = 2
THREAD_LOCAL = 1
"""Of stream captures: other threads may go on."""

PTX = """
.version 7.0
.target sm_{}{}
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{{
    .reg .u64 %rd<5>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
again:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra again;
    ret;
}}
.visible .entry empty()
{{
    ret;
}}
"""


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
        self.device = self._get(ctypes.c_int, "cuDeviceGet", 0)
        context = self._get(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *words):
        result = getattr(self.library, name)(*words)
        if result != SUCCESS:
            raise Failed(name, result)

    def _get(self, kind, name, *words):
        """What a function puts where its first parameter points."""
        out = kind()
        self.call(name, ctypes.byref(out), *words)
        return out

    def uuid(self):
        raw = self._get(ctypes.c_ubyte * 16, "cuDeviceGetUuid", self.device)
        digits = bytes(raw).hex()
        parts = (digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        return "GPU-" + "-".join(parts)

    def total(self):
        return self._get(ctypes.c_size_t, "cuDeviceTotalMem_v2", self.device).value

    def memory(self):
        """Bytes that are left, and in all."""
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(total))
        return left.value, total.value

    def allocate(self, size):
        """The address; raises Failed."""
        return self._get(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(size))

    def free(self, address):
        self.call("cuMemFree_v2", address)

    def synchronize(self):
        self.call("cuCtxSynchronize")

    def module(self):
        """The kernels above."""
        attribute = "cuDeviceGetAttribute"
        have = tuple(
            self._get(ctypes.c_int, attribute, which, self.device).value for which in (MAJOR, MINOR)
        )
        text = PTX.format(*min(have, NEWEST_TARGET)).encode()
        return self._get(ctypes.c_void_p, "cuModuleLoadData", text)

    def function(self, module, name):
        return self._get(ctypes.c_void_p, "cuModuleGetFunction", module, name.encode())

    def stream(self):
        return self._get(ctypes.c_void_p, "cuStreamCreate", 1)

    def event(self):
        return self._get(ctypes.c_void_p, "cuEventCreate", DISABLE_TIMING)

    def spin(self, function, nanoseconds, stream):
        length = ctypes.c_uint64(nanoseconds)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
        shape = (1, 1, 1, 1, 1, 1, 0)
        self.call("cuLaunchKernel", function, *shape, stream, parameters, None)

    def graph(self, stream, fill):
        """An executable graph of what `fill` puts into the stream."""
        self.call("cuStreamBeginCapture_v2", stream, THREAD_LOCAL)
        fill()
        graph = self._get_last("cuStreamEndCapture", stream)
        return self._get(
            ctypes.c_void_p, "cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong()
        )

    def _get_last(self, name, *words):
        out = ctypes.c_void_p()
        self.call(name, *words, ctypes.byref(out))
        return out
