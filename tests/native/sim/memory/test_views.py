"""Texture and surface objects on the simulated driver, through cuda-bindings."""

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox

INVALID = "CUDA_ERROR_INVALID_VALUE"
VIEWS = """
KINDS = cu.CUresourcetype
FORMAT = cu.CUarray_format.CU_AD_FORMAT_FLOAT
def array(flags=0, levels=0):
    wanted = cu.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.NumChannels, wanted.Flags = 64, 32, 1, flags
    wanted.Format = FORMAT
    return done(cu.cuMipmappedArrayCreate(wanted, levels) if levels else cu.cuArray3DCreate(wanted))
def of_array(handle):
    found = cu.CUDA_RESOURCE_DESC()
    found.resType, found.res.array.hArray = KINDS.CU_RESOURCE_TYPE_ARRAY, handle
    return found
def linear(address, size=4096):
    found = cu.CUDA_RESOURCE_DESC()
    found.resType = KINDS.CU_RESOURCE_TYPE_LINEAR
    one = found.res.linear
    one.devPtr, one.format, one.numChannels, one.sizeInBytes = address, FORMAT, 1, size
    return found
def pitched(address, pitch):
    found = cu.CUDA_RESOURCE_DESC()
    found.resType = KINDS.CU_RESOURCE_TYPE_PITCH2D
    one = found.res.pitch2D
    one.devPtr, one.format, one.numChannels = address, FORMAT, 1
    one.width, one.height, one.pitchInBytes = 64, 8, pitch
    return found
def sampling():
    found = cu.CUDA_TEXTURE_DESC()
    found.filterMode, found.flags = cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR, 2
    return found
def texture(resource, region=None):
    return cu.cuTexObjectCreate(resource, sampling(), region)
memory = int(done(cu.cuMemAlloc(1 << 16)))
"""


def test_a_texture_tells_what_it_was_made_of(box: SimBox) -> None:
    out = told(
        box,
        VIEWS
        + """
handle = array()
one = done(texture(of_array(handle)))
print(int(done(cu.cuTexObjectGetResourceDesc(one)).res.array.hArray) == int(handle))
print(done(cu.cuTexObjectGetTextureDesc(one)).flags)
print(refused(cu.cuTexObjectGetResourceViewDesc(one)))
other = done(texture(linear(memory)))
print(int(other) != int(one), done(cu.cuTexObjectGetResourceDesc(other)).res.linear.sizeInBytes)
done(texture(pitched(memory, 256)))
cu.cuTexObjectDestroy(one)
print(refused(cu.cuTexObjectGetTextureDesc(one)), refused(cu.cuTexObjectDestroy(one)))
print(refused(cu.cuSurfObjectDestroy(other)))
""",
    )

    assert out == ["True", "2", INVALID, "True 4096", f"{INVALID} {INVALID}", INVALID]


def test_memory_of_a_texture_is_aligned_and_there(box: SimBox) -> None:
    out = told(
        box,
        VIEWS
        + """
for wrong in (linear(memory + 4), linear(memory, 0), linear(1 << 20), linear(memory, 1 << 30),
              pitched(memory, 248), pitched(memory, 250)):
    print(refused(texture(wrong)))
gone = array()
done(cu.cuArrayDestroy(gone))
print(refused(texture(of_array(gone))))
""",
    )

    assert out == [INVALID] * 7


def test_a_view_of_an_array_has_its_extents_and_levels(box: SimBox) -> None:
    out = told(
        box,
        VIEWS
        + """
def region(width=64, last=2):
    found = cu.CUDA_RESOURCE_VIEW_DESC()
    found.format = cu.CUresourceViewFormat.CU_RES_VIEW_FORMAT_FLOAT_1X32
    found.width, found.height, found.lastMipmapLevel = width, 32, last
    return found
whole = cu.CUDA_RESOURCE_DESC()
whole.resType = KINDS.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
whole.res.mipmap.hMipmappedArray = array(levels=3)
one = done(texture(whole, region()))
print(done(cu.cuTexObjectGetResourceViewDesc(one)).lastMipmapLevel)
for resource, wrong in ((whole, region(last=3)), (whole, region(width=32)),
                        (linear(memory), region(last=0))):
    print(refused(texture(resource, wrong)))
""",
    )

    assert out == ["2", *[INVALID] * 3]


def test_a_surface_is_of_an_array_that_was_made_for_it(box: SimBox) -> None:
    out = told(
        box,
        VIEWS
        + """
handle = array(flags=2)
one = done(cu.cuSurfObjectCreate(of_array(handle)))
print(int(done(cu.cuSurfObjectGetResourceDesc(one)).res.array.hArray) == int(handle))
print(refused(cu.cuSurfObjectCreate(of_array(array()))))
print(refused(cu.cuSurfObjectCreate(linear(memory))))
cu.cuSurfObjectDestroy(one)
print(refused(cu.cuSurfObjectGetResourceDesc(one)))
print(done(cu.cuDeviceGetTexture1DLinearMaxWidth(FORMAT, 1, device)))
""",
    )

    assert out == ["True", INVALID, INVALID, INVALID, str(1 << 27)]
