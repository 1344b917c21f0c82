"""Texture and surface objects on the simulated driver, through cuda-bindings."""

from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *

MACHINE = {"cuda_version": 12050}
KINDS, FORMAT = cu.CUresourcetype, cu.CUarray_format.CU_AD_FORMAT_FLOAT

linear_memory = int(done(cu.cuMemAlloc(1 << 16)))


def array(flags: int = 0, levels: int = 0) -> Any:
    wanted = cu.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.NumChannels, wanted.Flags = 64, 32, 1, flags
    wanted.Format = FORMAT
    return done(cu.cuMipmappedArrayCreate(wanted, levels) if levels else cu.cuArray3DCreate(wanted))


def resource(kind: str) -> Any:
    found = cu.CUDA_RESOURCE_DESC()
    found.resType = getattr(KINDS, "CU_RESOURCE_TYPE_" + kind)
    return found


def of_array(handle: Any) -> Any:
    found = resource("ARRAY")
    found.res.array.hArray = handle
    return found


def linear(address: int = linear_memory, size: int = 4096) -> Any:
    found = resource("LINEAR")
    one = found.res.linear
    one.devPtr, one.format, one.numChannels, one.sizeInBytes = address, FORMAT, 1, size
    return found


def pitched(pitch: int) -> Any:
    found = resource("PITCH2D")
    one = found.res.pitch2D
    one.devPtr, one.format, one.numChannels = linear_memory, FORMAT, 1
    one.width, one.height, one.pitchInBytes = 64, 8, pitch
    return found


def texture(of: Any, region: Any = None) -> Any:
    sampling = cu.CUDA_TEXTURE_DESC()
    sampling.filterMode, sampling.flags = cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR, 2
    return cu.cuTexObjectCreate(of, sampling, region)


def test_a_texture_tells_what_it_was_made_of() -> None:
    handle = array()
    one, other = done(texture(of_array(handle))), done(texture(linear()))
    assert int(done(cu.cuTexObjectGetResourceDesc(one)).res.array.hArray) == int(handle)
    assert done(cu.cuTexObjectGetTextureDesc(one)).flags == 2
    assert refused(cu.cuTexObjectGetResourceViewDesc(one)) == INVALID
    assert int(other) != int(one)
    assert done(cu.cuTexObjectGetResourceDesc(other)).res.linear.sizeInBytes == 4096
    done(texture(pitched(256)))

    cu.cuTexObjectDestroy(one)
    assert refused(cu.cuTexObjectGetTextureDesc(one)) == INVALID
    assert refused(cu.cuTexObjectDestroy(one)) == refused(cu.cuSurfObjectDestroy(other)) == INVALID


def test_memory_of_a_texture_is_aligned_and_there() -> None:
    gone = array()
    done(cu.cuArrayDestroy(gone))
    for wrong in (
        *(linear(linear_memory + 4), linear(size=0), linear(1 << 20), linear(size=1 << 30)),
        *(pitched(248), pitched(250), of_array(gone)),
    ):
        assert refused(texture(wrong)) == INVALID


def test_a_view_of_an_array_has_its_extents_and_levels() -> None:
    def region(width: int = 64, last: int = 2) -> Any:
        found = cu.CUDA_RESOURCE_VIEW_DESC()
        found.format = cu.CUresourceViewFormat.CU_RES_VIEW_FORMAT_FLOAT_1X32
        found.width, found.height, found.lastMipmapLevel = width, 32, last
        return found

    whole = resource("MIPMAPPED_ARRAY")
    whole.res.mipmap.hMipmappedArray = array(levels=3)
    one = done(texture(whole, region()))
    assert done(cu.cuTexObjectGetResourceViewDesc(one)).lastMipmapLevel == 2
    for of, wrong in (
        (whole, region(last=3)),
        (whole, region(width=32)),
        (linear(), region(last=0)),
    ):
        assert refused(texture(of, wrong)) == INVALID


def test_a_surface_is_of_an_array_that_was_made_for_it() -> None:
    handle = array(flags=2)
    one = done(cu.cuSurfObjectCreate(of_array(handle)))
    assert int(done(cu.cuSurfObjectGetResourceDesc(one)).res.array.hArray) == int(handle)
    assert refused(cu.cuSurfObjectCreate(of_array(array()))) == INVALID
    assert refused(cu.cuSurfObjectCreate(linear())) == INVALID
    cu.cuSurfObjectDestroy(one)
    assert refused(cu.cuSurfObjectGetResourceDesc(one)) == INVALID
    assert done(cu.cuDeviceGetTexture1DLinearMaxWidth(FORMAT, 1, device)) == 1 << 27
