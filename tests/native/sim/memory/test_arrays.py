"""Arrays of the simulated driver: what there is, what it takes, what it is refused for."""

import ctypes
from typing import Any

from cuda.bindings import driver

from tests.native.programs.array_words import *
from tests.native.programs.virtual_client import cuda
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
PAGE = 65536

context = start(cuda)


def code(*extents: int, **how: Any) -> int:
    return create(cuda, *extents, **how)[0]


def made(*extents: int, **how: Any) -> Any:
    return create(cuda, *extents, **how)[1]


def test_an_array_takes_what_the_driver_said_it_would_need_and_gives_all_of_it_back(
    box: SimBox,
) -> None:
    shapes: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((1000,), {}),
        ((1000, 700), {"kind": FLOAT, "channels": 4}),
        ((100, 60, 33), {"kind": HALF, "channels": 2}),
        ((100, 0, 7), {"flags": LAYERED}),
        ((100, 60, 7), {"flags": LAYERED}),
        ((64, 64, 6), {"flags": CUBEMAP}),
        ((64, 64, 12), {"flags": CUBEMAP | LAYERED}),
        ((1024, 512), {"kind": BC1}),
        ((1024, 512), {"kind": BC7}),
        ((1000, 700), {"form": MIPMAPPED, "levels": 99}),
        ((64, 64, 64), {"form": MIPMAPPED, "levels": 3}),
        ((64, 64, 12), {"form": MIPMAPPED, "levels": 7, "flags": CUBEMAP | LAYERED}),
    ]
    for extents, how in shapes:
        took = taken(cuda, *extents, **how)
        assert needed(cuda, *extents, **how) == took > 0
        assert took % PAGE == 0
    assert box.gpus.device_bytes(box.uuid) == 0


def test_an_array_of_each_format_takes_its_elements_and_what_the_tiles_add() -> None:
    for kind, bits in BITS.items():  # tiles without a rest
        took = taken(cuda, 1024, 512, kind=kind, channels=CHANNELS.get(kind, 1))
        assert took == 1024 * 512 * bits // 8
    assert taken(cuda, 1001, 513, kind=FLOAT, channels=4) > 1001 * 513 * 16


def test_the_size_is_of_whole_tiles_and_pages() -> None:
    rows_and_layers = 64 * 8 * 1024
    sizes: list[tuple[tuple[int, ...], dict[str, Any], int]] = [
        ((1,), {}, PAGE),
        ((65, 1024), {}, 2 * PAGE),
        ((64, 1025), {}, 2 * PAGE),
        ((64, 1, 1024), {}, rows_and_layers),
        ((64, 0, 1024), {"flags": LAYERED}, rows_and_layers),
        ((4096, 4096), {"form": MIPMAPPED, "levels": 2}, 20 << 20),
    ]
    for extents, how, size in sizes:
        assert taken(cuda, *extents, **how) == size


def test_what_is_no_array_is_refused_and_takes_nothing() -> None:
    wrong: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        *(((0,), {}), ((0, 8), {}), ((8, 0, 8), {}), ((1 << 40, 8), {})),
        *(((8, 8), {"channels": channels}) for channels in (0, 3)),
        *(((8, 8), {"kind": kind}) for kind in (4, 193)),
        *(((8, 8), {"flags": flags}) for flags in (LAYERED, SPARSE | DEFERRED, 1 << 20)),
        *(((8, 16, 6), {"flags": CUBEMAP}), ((8, 8, 7), {"flags": CUBEMAP})),
        ((8, 8, 7), {"flags": CUBEMAP | LAYERED}),
        *(((8,), {"flags": SPARSE}), ((8, 8, 8), {"flags": GATHER})),
        *(((7, 8), {"kind": BC1}), ((7, 8), {"kind": NV12}), ((8,), {"kind": NV12})),
        ((8, 8), {"kind": NV12, "flags": DEFERRED}),
        ((8, 8), {"kind": NV12, "form": MIPMAPPED}),
    ]
    for extents, how in wrong:
        assert code(*extents, **how) == 1, (extents, how)
    assert cuda.cuArray3DCreate_v2(None, None) == cuda.cuArrayCreate_v2(None, None) == 1
    assert held(cuda) == 0


def test_memory_that_is_not_there_is_not_given() -> None:
    extents = 16384, 16384, 16  # 16 GiB of 4 bytes
    assert code(*extents, kind=U8) == 0

    assert (code(*extents, kind=FLOAT), code(8)) == (2, 0)


def test_every_form_of_creating_is_described_by_every_form_of_asking() -> None:
    forms = {
        "cuArrayCreate": [100, 60, 16, 2],
        "cuArrayCreate_v2": [100, 60, 16, 2],
        "cuArray3DCreate": [100, 60, 0, 16, 2, 0],
        "cuArray3DCreate_v2": [100, 60, 0, 16, 2, 0],
    }
    for form in forms:
        array = made(100, 60, kind=HALF, channels=2, form=form)
        assert {other: shape(cuda, array, other) for other in forms} == forms


def test_levels_and_planes_are_arrays_of_their_own_and_go_with_the_whole() -> None:
    level, plane = cuda.cuMipmappedArrayGetLevel, cuda.cuArrayGetPlane

    def get(whole: Any, number: int, how: Any = level) -> tuple[int, ctypes.c_void_p]:
        found = ctypes.c_void_p()
        return how(ctypes.byref(found), whole, number), found

    def shapes(whole: Any, how: Any) -> list[list[int]]:
        return [shape(cuda, get(whole, number, how)[1]) for number in range(2)]

    whole = made(700, 300, form=MIPMAPPED, levels=99, kind=FLOAT, channels=2)
    video, plain = made(640, 480, kind=NV12, channels=3), made(8, 8)
    part = get(whole, 3)[1]
    assert shapes(whole, level) == [[700, 300, 0, 32, 2, 0], [350, 150, 0, 32, 2, 0]]
    assert shapes(video, plane) == [[640, 480, 0, 1, 1, 0], [320, 240, 0, 1, 2, 0]]
    assert get(whole, 1)[1].value == get(whole, 1)[1].value
    assert destroy(cuda, get(whole, 0)[1]) == 400
    assert [get(whole, 10)[0], get(video, 2, plane)[0], get(plain, 0, plane)[0]] == [1, 1, 1]
    assert get(whole, 9)[1].value is not None
    assert destroy(cuda, whole, MIPMAPPED) == 0
    assert [cuda.cuArrayDestroy(part), get(whole, 0)[0]] == [400, 400]


def test_sparse_arrays_take_nothing_and_have_tiles_of_a_page() -> None:
    sparse: list[tuple[tuple[int, ...], dict[str, Any], object]] = [
        ((4096, 4096), {"kind": FLOAT}, ([128, 128, 1], 0, 0)),
        ((512, 512, 64), {"kind": U8}, ([64, 32, 32], 0, 0)),
        ((4096, 4096), {"kind": BC7}, ([256, 256, 1], 0, 0)),
        ((1024, 1024), {"form": MIPMAPPED, "levels": 99}, ([256, 256, 1], 3, PAGE)),
    ]
    for extents, how, expected in sparse:
        array, found = made(*extents, flags=SPARSE, **how), Sparse()
        kind = "MipmappedArray" if "form" in how else "Array"
        assert getattr(cuda, f"cu{kind}GetSparseProperties")(ctypes.byref(found), array) == 0
        assert (list(found.tile), found.first, found.size) == expected
    plain = made(8, 8, flags=DEFERRED)
    assert held(cuda) == 0
    assert cuda.cuArrayGetSparseProperties(ctypes.byref(Sparse()), plain) == 1


def test_only_an_array_that_is_mapped_later_says_what_it_needs() -> None:
    needs, plain, deferred = ctypes.byref(Needs()), made(8), made(8, flags=DEFERRED)

    assert cuda.cuArrayGetMemoryRequirements(needs, plain, 0) == 1
    assert cuda.cuArrayGetMemoryRequirements(needs, deferred, 9) == 101
    assert cuda.cuMipmappedArrayGetMemoryRequirements(needs, deferred, 0) == 400
    assert cuda.cuArrayGetMemoryRequirements(needs, deferred, 0) == 0


def test_arrays_end_with_their_context(box: SimBox) -> None:
    array = made(1000, 1000)
    made(64, 64, 64, form=MIPMAPPED, levels=4)

    assert [cuda.cuCtxDestroy_v2(context), destroy(cuda, array)] == [0, 400]
    assert box.gpus.device_bytes(box.uuid) == 0


def test_rows_of_the_first_interface_are_padded_alike() -> None:
    at, pitch = ctypes.c_uint32(), ctypes.c_uint32()
    to = ctypes.byref(at), ctypes.byref(pitch)

    assert (cuda.cuMemAllocPitch(*to, 500, 100, 4), pitch.value, held(cuda)) == (0, 512, 51200)
    assert (cuda.cuMemFree(at), held(cuda)) == (0, 0)
    assert cuda.cuMemAllocPitch(*to, 500, 100, 3) == 1


def test_every_documented_format_is_known() -> None:
    documented = {int(kind) for kind in driver.CUarray_format} - {0x7FFFFFFF}

    assert documented == set(BITS)
    assert documented.issuperset(PLANAR)
