"""The client's side of tests of pointers: what the driver says of an address."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")

UNTOUCHED = 0x55555555
"""The upper half of a word that a value of 32 bits was written to."""


def ask(address: int, *attributes: int) -> list[int]:
    """The code of cuPointerGetAttributes, and the values."""
    words = (ctypes.c_uint64 * len(attributes))(*[UNTOUCHED << 32] * len(attributes))
    places = [ctypes.addressof(words) + 8 * index for index in range(len(attributes))]
    code = cuda.cuPointerGetAttributes(
        len(attributes),
        (ctypes.c_int * len(attributes))(*attributes),
        (ctypes.c_void_p * len(attributes))(*places),
        ctypes.c_uint64(address),
    )
    return [code, *map(_value, words)]


def _value(word: int) -> int:
    return ctypes.c_int32(word).value if word >> 32 == UNTOUCHED else word


def one(address: int, attribute: int) -> list[int]:
    """The code of cuPointerGetAttribute, and the value."""
    value = ctypes.c_int64()
    code = cuda.cuPointerGetAttribute(ctypes.byref(value), attribute, ctypes.c_uint64(address))
    return [code, value.value]


def set_one(address: int, attribute: int, value: int) -> int:
    word = ctypes.c_uint(value)
    return int(cuda.cuPointerSetAttribute(ctypes.byref(word), attribute, ctypes.c_uint64(address)))


def pinned(size: int, flags: int = 0) -> int:
    """The address of memory from cuMemHostAlloc."""
    address = ctypes.c_void_p()
    assert cuda.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), flags) == 0
    return address.value or 0


def flags_of(address: int) -> list[int]:
    flags = ctypes.c_uint()
    return [
        cuda.cuMemHostGetFlags(ctypes.byref(flags), ctypes.c_void_p(address)),
        flags.value,
    ]
