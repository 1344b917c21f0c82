"""Arrays of the simulated driver: what there is, what it takes, what it is refused for."""

import json
from typing import Any

import pytest

from tests.native.programs.array_words import BITS, CHANNELS, PLANAR
from tests.native.sim_box import SimBox

PAGE = 65536


def asked(box: SimBox, expression: str, before: str = "") -> Any:
    """What a program in a context on GPU 0 finds the expression to be."""
    prelude = "from tests.native.programs.array_words import *\nimport json\n"
    prelude += 'cuda = ctypes.CDLL("libcuda.so.1")\n'
    script = f"{prelude}context = start(cuda)\n{before}\nprint(json.dumps({expression}))"
    return json.loads(box.python(script))


SHAPES = (
    "dict(extents=(1000,)), dict(extents=(1000, 700), kind=FLOAT, channels=4),"
    "dict(extents=(100, 60, 33), kind=HALF, channels=2),"
    "dict(extents=(100, 0, 7), flags=LAYERED), dict(extents=(100, 60, 7), flags=LAYERED),"
    "dict(extents=(64, 64, 6), flags=CUBEMAP), dict(extents=(64, 64, 12), flags=CUBEMAP | LAYERED),"
    "dict(extents=(1024, 512), kind=BC1), dict(extents=(1024, 512), kind=BC7),"
    "dict(extents=(1000, 700), form=MIPMAPPED, levels=99),"
    "dict(extents=(64, 64, 64), form=MIPMAPPED, levels=3),"
    "dict(extents=(64, 64, 12), form=MIPMAPPED, levels=7, flags=CUBEMAP | LAYERED)"
)


def test_an_array_takes_what_the_driver_said_it_would_need_and_gives_all_of_it_back(
    box: SimBox,
) -> None:
    found = asked(
        box,
        "[(needed(cuda, *how['extents'], **rest(how)), taken(cuda, *how['extents'], **rest(how)))"
        f" for how in ({SHAPES})]",
        "rest = lambda how: {name: value for name, value in how.items() if name != 'extents'}",
    )

    assert all(said == took > 0 and took % PAGE == 0 for said, took in found)
    assert box.gpus.device_bytes(box.uuid) == 0


def test_an_array_of_each_format_takes_its_elements_and_what_the_tiles_add(box: SimBox) -> None:
    kinds = {kind: CHANNELS.get(kind, 1) for kind in BITS}

    found = asked(
        box,
        f"[taken(cuda, 1024, 512, kind=kind, channels=channels) for kind, channels in"
        f" {list(kinds.items())}]",
    )

    assert found == [1024 * 512 * bits // 8 for bits in BITS.values()]  # tiles without a rest
    assert asked(box, "taken(cuda, 1001, 513, kind=FLOAT, channels=4)") > 1001 * 513 * 16


def test_the_size_is_of_whole_tiles_and_pages(box: SimBox) -> None:
    found = asked(
        box,
        "[taken(cuda, *extents, **how) for extents, how in ("
        "((1,), {}), ((65, 1024), {}), ((64, 1025), {}), ((64, 1, 1024), {}),"
        "((64, 0, 1024), dict(flags=LAYERED)), ((4096, 4096), dict(form=MIPMAPPED, levels=2)))]",
    )

    rows_and_layers = 64 * 8 * 1024
    assert found == [PAGE, 2 * PAGE, 2 * PAGE, rows_and_layers, rows_and_layers, 20 << 20]


def test_what_is_no_array_is_refused_and_takes_nothing(box: SimBox) -> None:
    wrong = (
        "((0,), {}), ((0, 8), {}), ((8, 0, 8), {}), ((8, 8), dict(kind=4)), ((1 << 40, 8), {}),"
        "((8, 8), dict(channels=3)), ((8, 8), dict(channels=0)), ((8, 8), dict(kind=193)),"
        "((8, 8), dict(flags=LAYERED)), ((8, 16, 6), dict(flags=CUBEMAP)),"
        "((8, 8, 7), dict(flags=CUBEMAP)), ((8, 8, 7), dict(flags=CUBEMAP | LAYERED)),"
        "((8,), dict(flags=SPARSE)), ((8, 8), dict(flags=SPARSE | DEFERRED)),"
        "((8, 8, 8), dict(flags=GATHER)), ((8, 8), dict(flags=1 << 20)),"
        "((7, 8), dict(kind=BC1)), ((7, 8), dict(kind=NV12)), ((8,), dict(kind=NV12)),"
        "((8, 8), dict(kind=NV12, flags=DEFERRED)), ((8, 8), dict(kind=NV12, form=MIPMAPPED))"
    )

    found = asked(
        box,
        f"[create(cuda, *extents, **how)[0] for extents, how in ({wrong})]"
        " + [cuda.cuArray3DCreate_v2(None, None), cuda.cuArrayCreate_v2(None, None), held(cuda)]",
    )

    assert set(found[:-1]) == {1}
    assert found[-1] == 0


def test_memory_that_is_not_there_is_not_given(box: SimBox) -> None:
    extents = "16384, 16384, 16"  # 16 GiB of 4 bytes

    found = asked(
        box,
        f"[create(cuda, {extents}, kind=FLOAT)[0], create(cuda, 8)[0]]",
        f"assert create(cuda, {extents}, kind=U8)[0] == 0",
    )

    assert found == [2, 0]


def test_every_form_of_creating_is_described_by_every_form_of_asking(box: SimBox) -> None:
    found = asked(
        box,
        "[[shape(cuda, array, other) for other in flat + deep] for array in"
        " [create(cuda, 100, 60, kind=HALF, channels=2, form=form)[1] for form in flat + deep]]",
        'flat, deep = ["cuArrayCreate", "cuArrayCreate_v2"],'
        ' ["cuArray3DCreate", "cuArray3DCreate_v2"]',
    )

    assert all(forms == 2 * [[100, 60, 16, 2]] + 2 * [[100, 60, 0, 16, 2, 0]] for forms in found)


def test_levels_and_planes_are_arrays_of_their_own_and_go_with_the_whole(box: SimBox) -> None:
    found = asked(
        box,
        "[[shape(cuda, part(whole, n)) for n in range(2)], [shape(cuda, part(video, n, PLANE))"
        " for n in range(2)], part(whole, 1).value == part(whole, 1).value,"
        " destroy(cuda, part(whole, 0)), get(whole, 10)[0], get(video, 2, PLANE)[0],"
        " get(plain, 0, PLANE)[0], part(whole, 9).value is not None,"
        " destroy(cuda, whole, MIPMAPPED), cuda.cuArrayDestroy(level), get(whole, 0)[0]]",
        """
LEVEL, PLANE = cuda.cuMipmappedArrayGetLevel, cuda.cuArrayGetPlane
def get(whole, number, how=LEVEL):
    found = ctypes.c_void_p()
    return how(ctypes.byref(found), whole, number), found
def part(*which):
    code, found = get(*which)
    assert code == 0
    return found
whole = create(cuda, 700, 300, form=MIPMAPPED, levels=99, kind=FLOAT, channels=2)[1]
video, plain = create(cuda, 640, 480, kind=NV12, channels=3)[1], create(cuda, 8, 8)[1]
level = part(whole, 3)
""",
    )

    assert found[0] == [[700, 300, 0, 32, 2, 0], [350, 150, 0, 32, 2, 0]]
    assert found[1] == [[640, 480, 0, 1, 1, 0], [320, 240, 0, 1, 2, 0]]
    assert found[2:] == [True, 400, 1, 1, 1, True, 0, 400, 400]


def test_sparse_arrays_take_nothing_and_have_tiles_of_a_page(box: SimBox) -> None:
    found = asked(
        box,
        "[(list(p.tile), p.first, p.size) for p in map(properties, ("
        "dict(extents=(4096, 4096), kind=FLOAT), dict(extents=(512, 512, 64), kind=U8),"
        "dict(extents=(4096, 4096), kind=BC7),"
        "dict(extents=(1024, 1024), kind=U8, form=MIPMAPPED, levels=99)))]"
        " + [held(cuda), cuda.cuArrayGetSparseProperties(ctypes.byref(Sparse()), plain)]",
        """
def properties(how):
    form = how.get("form", "cuArray3DCreate_v2")
    code, array = create(cuda, *how.pop("extents"), flags=SPARSE, **how)
    name = form.partition("Create")[0].replace("3D", "") + "GetSparseProperties"
    found = Sparse()
    assert (code, getattr(cuda, name)(ctypes.byref(found), array)) == (0, 0)
    return found
plain = create(cuda, 8, 8, flags=DEFERRED)[1]
""",
    )

    assert found[0] == [[128, 128, 1], 0, 0]
    assert found[1] == [[64, 32, 32], 0, 0]
    assert found[2] == [[256, 256, 1], 0, 0]
    assert found[3] == [[256, 256, 1], 3, PAGE]
    assert found[4:] == [0, 1]


def test_only_an_array_that_is_mapped_later_says_what_it_needs(box: SimBox) -> None:
    found = asked(
        box,
        "[cuda.cuArrayGetMemoryRequirements(by, plain, 0),"
        " cuda.cuArrayGetMemoryRequirements(by, deferred, 9),"
        " cuda.cuMipmappedArrayGetMemoryRequirements(by, deferred, 0),"
        " cuda.cuArrayGetMemoryRequirements(by, deferred, 0)]",
        "by, plain, deferred = ctypes.byref(Needs()), create(cuda, 8)[1],"
        " create(cuda, 8, flags=DEFERRED)[1]",
    )

    assert found == [1, 101, 400, 0]


def test_arrays_end_with_their_context(box: SimBox) -> None:
    assert asked(
        box,
        "[cuda.cuCtxDestroy_v2(context), destroy(cuda, array)]",
        "array = create(cuda, 1000, 1000)[1]; create(cuda, 64, 64, 64, form=MIPMAPPED, levels=4)",
    ) == [0, 400]

    assert box.gpus.device_bytes(box.uuid) == 0


def test_rows_of_the_first_interface_are_padded_alike(box: SimBox) -> None:
    found = asked(
        box,
        "[cuda.cuMemAllocPitch(ctypes.byref(at), ctypes.byref(pitch), 500, 100, 4), pitch.value,"
        " held(cuda), cuda.cuMemFree(at), held(cuda),"
        " cuda.cuMemAllocPitch(ctypes.byref(at), ctypes.byref(pitch), 500, 100, 3)]",
        "at, pitch = ctypes.c_uint32(), ctypes.c_uint32()",
    )

    assert found == [0, 512, 51200, 0, 0, 1]


def test_every_documented_format_is_known() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    documented = {int(kind) for kind in driver.CUarray_format} - {0x7FFFFFFF}

    assert documented == set(BITS)
    assert documented.issuperset(PLANAR)
