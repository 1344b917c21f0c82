"""Arrays as a program makes them, by ctypes on any `libcuda.so.1`: for tests of both sides of it.

Runs in a client of the simulated driver and in a container behind the shim alike.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LAYERED, CUBEMAP, GATHER, SPARSE, DEFERRED = 0x01, 0x04, 0x08, 0x40, 0x80
U8, U16, U32, HALF, FLOAT = 1, 2, 3, 16, 32
BC1, BC7, NV12, P016, PLANAR_420, UNORM8X4 = 145, 157, 176, 161, 89, 194

BITS = (
    {1: 8, 2: 16, 3: 32, 8: 8, 9: 16, 10: 32, 16: 16, 32: 32}
    | {80: 32, 81: 16, 82: 32}
    | {83: 12, 84: 24, 85: 16, 86: 32, 87: 24, 88: 48}
    | {89: 12, 90: 24, 91: 16, 92: 32, 93: 24, 94: 48}
    | dict.fromkeys((145, 146, 151, 152), 4)
    | dict.fromkeys((*range(147, 151), *range(153, 159)), 8)
    | {159: 24, 161: 24, 162: 16, 163: 32, 164: 32, 165: 16}
    | dict.fromkeys((166, 167, 168, 169), 32)
    | {176: 12, 177: 64, 178: 24, 179: 48, 180: 24, 181: 48}
    | {192: 8, 193: 16, 194: 32, 195: 16, 196: 32, 197: 64}
    | {198: 8, 199: 16, 200: 32, 201: 16, 202: 32, 203: 64}
)
"""By format, what one element of one channel takes (of all channels where the name fixes them)."""

CHANNELS = {193: 2, 194: 4, 196: 2, 197: 4, 199: 2, 200: 4, 202: 2, 203: 4}
PLANAR = (*range(83, 95), 159, *range(161, 165), 176, *range(178, 182))


def descriptor(extent: type[Any], members: str) -> type[ctypes.Structure]:
    """The struct with these members, of which the extents are of this type."""
    words = dict.fromkeys(members.split(), ctypes.c_uint32)
    kinds = words | {name: extent for name in EXTENTS if name in words}
    return type("Descriptor", (ctypes.Structure,), {"_fields_": list(kinds.items())})


def members(form: str) -> list[str]:
    return [field[0] for field in FORMS[form]._fields_]


EXTENTS = ("Width", "Height", "Depth")
FLAT = "Width Height Format NumChannels"
DEEP = "Width Height Depth Format NumChannels Flags"
FORMS = {
    "cuArrayCreate": descriptor(ctypes.c_uint32, FLAT),
    "cuArrayCreate_v2": descriptor(ctypes.c_size_t, FLAT),
    "cuArray3DCreate": descriptor(ctypes.c_uint32, DEEP),
    "cuArray3DCreate_v2": descriptor(ctypes.c_size_t, DEEP),
    "cuMipmappedArrayCreate": descriptor(ctypes.c_size_t, DEEP),
}
MIPMAPPED = "cuMipmappedArrayCreate"


class Needs(ctypes.Structure):
    """CUDA_ARRAY_MEMORY_REQUIREMENTS."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("alignment", ctypes.c_size_t),
        ("reserved", ctypes.c_uint32 * 4),
    )


class Sparse(ctypes.Structure):
    """CUDA_ARRAY_SPARSE_PROPERTIES."""

    _fields_ = (
        ("tile", ctypes.c_uint32 * 3),
        ("first", ctypes.c_uint32),
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 4),
    )


def start(library: Any) -> Any:
    """A context on device 0."""
    context = ctypes.c_void_p()
    assert library.cuInit(0) == 0
    assert library.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    return context


def create(
    library: Any,
    *extents: int,
    form: str = "cuArray3DCreate_v2",
    kind: int = U8,
    channels: int = 1,
    flags: int = 0,
    levels: int = 1,
    entry: Any = None,
) -> tuple[int, ctypes.c_void_p]:
    """The driver's answer and the handle. entry: a function in place of the export `form`."""
    values = dict(zip(EXTENTS, extents, strict=False))
    values |= {"Format": kind, "NumChannels": channels, "Flags": flags}
    array, asked = ctypes.c_void_p(), FORMS[form]()
    for name in values.keys() & members(form):
        setattr(asked, name, values[name])
    more = (levels,) if form == MIPMAPPED else ()
    call = entry or getattr(library, form)
    return int(call(ctypes.byref(array), ctypes.byref(asked), *more)), array


def destroy(library: Any, array: ctypes.c_void_p, form: str = "cuArray3DCreate_v2") -> int:
    name = "cuMipmappedArrayDestroy" if form == MIPMAPPED else "cuArrayDestroy"
    return int(getattr(library, name)(array))


def held(library: Any) -> int:
    """Bytes of the GPU that are not free."""
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert library.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    return total.value - left.value


def taken(library: Any, *extents: int, **how: Any) -> int:
    """What an array takes while it is there; it takes nothing after."""
    before = held(library)
    code, array = create(library, *extents, **how)
    assert code == 0, code
    during = held(library) - before
    assert destroy(library, array, how.get("form", "")) == 0
    assert held(library) == before
    return during


def needed(library: Any, *extents: int, **how: Any) -> int:
    """What the driver says a deferred array of that kind will need; it takes nothing itself."""
    before, needs = held(library), Needs()
    with existing(library, *extents, **how | {"flags": how.get("flags", 0) | DEFERRED}) as array:
        mipmapped = how.get("form") == MIPMAPPED
        name = f"cu{'MipmappedArray' if mipmapped else 'Array'}GetMemoryRequirements"
        assert getattr(library, name)(ctypes.byref(needs), array, 0) == 0
        assert held(library) == before
    return int(needs.size)


@contextmanager
def existing(library: Any, *extents: int, **how: Any) -> Iterator[ctypes.c_void_p]:
    """An array, for as long as the block lasts."""
    code, array = create(library, *extents, **how)
    assert code == 0, code
    yield array
    assert destroy(library, array, how.get("form", "")) == 0


def shape(library: Any, array: ctypes.c_void_p, form: str = "cuArray3DCreate_v2") -> list[int]:
    """What the driver says an array is, in the form's own descriptor."""
    found, ask = FORMS[form](), getattr(library, form.replace("Create", "GetDescriptor"))
    assert ask(ctypes.byref(found), array) == 0
    return [getattr(found, name) for name in members(form)]
