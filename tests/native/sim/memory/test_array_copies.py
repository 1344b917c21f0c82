"""Copies to and from arrays on the simulated driver, through cuda-bindings."""

import ctypes
from collections.abc import Mapping
from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *
from tests.native.programs.stream_client import hold, host, mark, new, reserve, since

MACHINE = {"cuda_version": 12050}
KINDS = cu.CUmemorytype


def array(width: int, height: int, *, channels: int = 1, kind: str = "UNSIGNED_INT8") -> Any:
    wanted = cu.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.NumChannels = width, height, channels
    wanted.Format = getattr(cu.CUarray_format, "CU_AD_FORMAT_" + kind)
    return done(cu.cuArray3DCreate(wanted))


def side(copy: Any, name: str, where: Any, at: Mapping[str, int]) -> None:
    if isinstance(where, cu.CUarray):
        kind, member, value = KINDS.CU_MEMORYTYPE_ARRAY, "Array", where
    elif isinstance(where, int):
        kind, member, value = KINDS.CU_MEMORYTYPE_DEVICE, "Device", where
    else:
        kind, member, value = KINDS.CU_MEMORYTYPE_HOST, "Host", ctypes.addressof(where)
    setattr(copy, name + "MemoryType", kind)
    setattr(copy, name + member, value)
    for field, found in at.items():
        setattr(copy, name + field, found)


def block(to: Any, source: Any, width: int, height: int, **places: Mapping[str, int]) -> Any:
    """places: of either end, where it is there and how long its rows are."""
    copy = cu.CUDA_MEMCPY2D()
    side(copy, "src", source, places.get("from_at", {}))
    side(copy, "dst", to, places.get("to_at", {}))
    copy.WidthInBytes, copy.Height = width, height
    return copy


def copied(to: Any, source: Any, width: int, height: int, **places: Mapping[str, int]) -> Any:
    return *cu.cuMemcpy2D(block(to, source, width, height, **places)), None


def text(size: int) -> Any:
    return (ctypes.c_char * size)()


def test_a_block_goes_to_an_array_and_comes_back() -> None:
    a, here, back = array(8, 4), text(32), text(16)
    here.raw = bytes(range(32))
    done(copied(a, here, 8, 4, from_at={"Pitch": 8}))
    done(copied(back, a, 4, 2, to_at={"Pitch": 8}, from_at={"XInBytes": 2, "Y": 1}))

    assert list(back.raw) == [10, 11, 12, 13, 0, 0, 0, 0, 18, 19, 20, 21, 0, 0, 0, 0]


def test_arrays_and_device_memory_copy_to_each_other() -> None:
    one, other = array(16, 0), array(16, 0)
    memory, back = int(done(cu.cuMemAlloc(64))), text(16)
    for answer in (
        cu.cuMemcpyHtoA(one, 4, b"abcd", 4),
        cu.cuMemcpyAtoA(other, 0, one, 2, 8),
        cu.cuMemcpyAtoD(memory, other, 0, 16),
        cu.cuMemcpyDtoA(one, 8, memory, 8),
        cu.cuMemcpyAtoHAsync(ctypes.addressof(back), one, 0, 16, stream),
    ):
        assert int(answer[0]) == 0

    assert back.raw == b"\0\0\0\0abcd\0\0abcd\0\0"


def test_what_does_not_fit_the_array_is_refused() -> None:
    a, here = array(8, 4), text(64)
    assert refused(copied(a, here, 9, 1, from_at={"Pitch": 16})) == INVALID
    assert refused(copied(a, here, 8, 4, from_at={"Pitch": 8}, to_at={"Y": 1})) == INVALID
    assert refused(cu.cuMemcpyAtoH(ctypes.addressof(here), a, 5, 4)) == INVALID
    done(cu.cuArrayDestroy(a))
    row = here, 8, 1
    assert refused(copied(a, *row, from_at={"Pitch": 8})) == "CUDA_ERROR_INVALID_HANDLE"
    planes = array(8, 8, kind="NV12", channels=3)
    assert refused(copied(planes, *row, from_at={"Pitch": 8})) == "CUDA_ERROR_NOT_SUPPORTED"


def test_copies_with_arrays_take_the_links_time_or_the_memorys() -> None:
    a, memory, here = array(1000, 1000, channels=4), int(reserve(4)), host(4)
    where = (ctypes.c_char * 1).from_address(int(here))
    s = new()
    begin = hold([s])
    done(cu.cuMemcpy2DAsync(block(a, where, 4000, 1000, from_at={"Pitch": 4000}), s))
    first = mark(s)
    done(cu.cuMemcpy2DAsync(block(memory, a, 4000, 1000, to_at={"Pitch": 4000}), s))

    # 2 us and 4 MB at 12 GB/s; 1 us and 8 MB at 500 GB/s
    assert since(begin, first, mark(s)) == [0.3353, 0.3523]


def test_a_graph_copies_to_an_array_that_still_exists() -> None:
    a, here, back = array(8, 0), text(8), text(8)
    here.raw = b"abcdefgh"
    capture()
    done(cu.cuMemcpyHtoAAsync(a, 0, ctypes.addressof(here), 8, stream))
    executable = ready(captured())
    launch(executable)
    done(cu.cuMemcpyAtoH(ctypes.addressof(back), a, 0, 8))
    assert back.raw == b"abcdefgh"
    done(cu.cuArrayDestroy(a))
    assert refused(cu.cuGraphLaunch(executable, stream)) == "CUDA_ERROR_INVALID_HANDLE"
