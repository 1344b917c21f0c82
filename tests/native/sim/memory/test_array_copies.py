"""Copies to and from arrays on the simulated driver, through cuda-bindings."""

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox

ARRAYS = """
def array(width, height, depth=0, channels=1, kind="UNSIGNED_INT8", flags=0):
    wanted = cu.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.Depth = width, height, depth
    wanted.NumChannels, wanted.Flags = channels, flags
    wanted.Format = getattr(cu.CUarray_format, "CU_AD_FORMAT_" + kind)
    return done(cu.cuArray3DCreate(wanted))
KINDS = cu.CUmemorytype
def side(copy, name, where, x=0, y=0, pitch=0):
    if isinstance(where, cu.CUarray):
        setattr(copy, name + "MemoryType", KINDS.CU_MEMORYTYPE_ARRAY)
        setattr(copy, name + "Array", where)
    elif isinstance(where, int):
        setattr(copy, name + "MemoryType", KINDS.CU_MEMORYTYPE_DEVICE)
        setattr(copy, name + "Device", where)
    else:
        setattr(copy, name + "MemoryType", KINDS.CU_MEMORYTYPE_HOST)
        setattr(copy, name + "Host", ctypes.addressof(where))
    setattr(copy, name + "XInBytes", x)
    setattr(copy, name + "Y", y)
    setattr(copy, name + "Pitch", pitch)
def block(to, source, width, height, to_at={}, from_at={}):
    copy = cu.CUDA_MEMCPY2D()
    side(copy, "src", source, **from_at)
    side(copy, "dst", to, **to_at)
    copy.WidthInBytes, copy.Height = width, height
    return copy
def copied(*arguments, **places):
    return cu.cuMemcpy2D(block(*arguments, **places))
def text(size):
    return (ctypes.c_char * size)()
"""


def test_a_block_goes_to_an_array_and_comes_back(box: SimBox) -> None:
    out = told(
        box,
        ARRAYS
        + """
a, here, back = array(8, 4), text(32), text(16)
here.raw = bytes(range(32))
done(copied(a, here, 8, 4, from_at={"pitch": 8}))
done(copied(back, a, 4, 2, to_at={"pitch": 8}, from_at={"x": 2, "y": 1}))
print(list(back.raw))
""",
    )

    assert out == [str([10, 11, 12, 13, 0, 0, 0, 0, 18, 19, 20, 21, 0, 0, 0, 0])]


def test_arrays_and_device_memory_copy_to_each_other(box: SimBox) -> None:
    out = told(
        box,
        ARRAYS
        + """
one, other = array(16, 0, channels=1), array(16, 0)
memory, back = int(done(cu.cuMemAlloc(64))), text(16)
done(cu.cuMemcpyHtoA(one, 4, b"abcd", 4))
done(cu.cuMemcpyAtoA(other, 0, one, 2, 8))
done(cu.cuMemcpyAtoD(memory, other, 0, 16))
done(cu.cuMemcpyDtoA(one, 8, memory, 8))
done(cu.cuMemcpyAtoHAsync(ctypes.addressof(back), one, 0, 16, stream))
print(back.raw)
""",
    )

    assert out == [str(b"\0\0\0\0abcd\0\0abcd\0\0")]


def test_what_does_not_fit_the_array_is_refused(box: SimBox) -> None:
    out = told(
        box,
        ARRAYS
        + """
a, here = array(8, 4), text(64)
print(refused(copied(a, here, 9, 1, from_at={"pitch": 16})))
print(refused(copied(a, here, 8, 4, from_at={"pitch": 8}, to_at={"y": 1})))
print(refused(cu.cuMemcpyAtoH(ctypes.addressof(here), a, 5, 4)))
done(cu.cuArrayDestroy(a))
print(refused(copied(a, here, 8, 1, from_at={"pitch": 8})))
planes = array(8, 8, kind="NV12", channels=3)
print(refused(copied(planes, here, 8, 1, from_at={"pitch": 8})))
""",
    )

    assert out == [
        *["CUDA_ERROR_INVALID_VALUE"] * 3,
        "CUDA_ERROR_INVALID_HANDLE",
        "CUDA_ERROR_NOT_SUPPORTED",
    ]


def test_copies_with_arrays_take_the_links_time_or_the_memorys(box: SimBox) -> None:
    out = box.python(
        "from tests.native.programs.stream_client import *\n"
        "from tests.native.programs.graph_client import *\n"
        + ARRAYS
        + """
a, memory, here = array(1000, 1000, channels=4), int(reserve(4)), host(4)
where = (ctypes.c_char * 1).from_address(int(here))
stream = new()
begin = hold([stream])
done(cu.cuMemcpy2DAsync(block(a, where, 4000, 1000, from_at={"pitch": 4000}), stream))
first = mark(stream)
done(cu.cuMemcpy2DAsync(block(memory, a, 4000, 1000, to_at={"pitch": 4000}), stream))
print(since(begin, first, mark(stream)))
""",
    )

    # 2 us and 4 MB at 12 GB/s; 1 us and 8 MB at 500 GB/s
    assert out == "[0.3353, 0.3523]\n"


def test_a_graph_copies_to_an_array_that_still_exists(box: SimBox) -> None:
    out = told(
        box,
        ARRAYS
        + """
a, here, back = array(8, 0), text(8), text(8)
here.raw = b"abcdefgh"
capture()
done(cu.cuMemcpyHtoAAsync(a, 0, ctypes.addressof(here), 8, stream))
executable = ready(captured())
launch(executable)
done(cu.cuMemcpyAtoH(ctypes.addressof(back), a, 0, 8))
print(back.raw)
done(cu.cuArrayDestroy(a))
print(refused(cu.cuGraphLaunch(executable, stream)))
""",
    )

    assert out == ["b'abcdefgh'", "CUDA_ERROR_INVALID_HANDLE"]
