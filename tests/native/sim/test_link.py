"""Linking on the simulated driver, through cuda-bindings."""

import ctypes
from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *
from tests.native.programs.virtual_client import cuda, figures
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
PTX, CUBIN = cu.CUjitInputType.CU_JIT_INPUT_PTX, cu.CUjitInputType.CU_JIT_INPUT_CUBIN


def text(size: int) -> bytes:
    return b".version 8.0\n.target sm_70\n.visible .global .b8 big[%d];\n" % size


def added(link: Any, kind: Any, image: bytes) -> Any:
    return cu.cuLinkAddData(link, kind, image, len(image), b"name", 0, [], [])


def linker() -> Any:
    return done(cu.cuLinkCreate(0, [], []))


def linked(*inputs: tuple[Any, bytes]) -> bytes:
    link = linker()
    for kind, image in inputs:
        assert int(added(link, kind, image)[0]) == 0
    image, size = done(cu.cuLinkComplete(link))
    found = ctypes.string_at(image, size)
    cu.cuLinkDestroy(link)
    return found


def taken(image: bytes) -> int:
    before, _ = figures(cuda)
    module = done(cu.cuModuleLoadData(image))
    assert done(cu.cuModuleGetFunction(module, b"any"))
    return figures(cuda)[0] - before


@on(context_bytes=1_048_576)
def test_what_is_linked_loads_and_takes_what_its_inputs_would() -> None:
    one = linked((PTX, text(1 << 20)), (PTX, text(2 << 20)))
    assert one[:4] == b"\x7fELF"
    assert taken(one) == taken(text(3 << 20))
    assert linked((CUBIN, one)) == one
    assert taken(linked((CUBIN, one), (PTX, text(1 << 20)))) - taken(one) >= 1 << 20


def test_what_is_no_program_is_not_linked() -> None:
    assert refused(added(linker(), PTX, b"no program")) == "CUDA_ERROR_INVALID_PTX"
    assert refused(added(linker(), CUBIN, text(4))) == "CUDA_ERROR_INVALID_IMAGE"
    link = linker()
    assert refused(cu.cuLinkComplete(link)) == INVALID
    nowhere = cu.cuLinkAddFile(link, PTX, b"/nowhere", 0, [], [])
    assert refused(nowhere) == "CUDA_ERROR_FILE_NOT_FOUND"


def test_a_file_is_linked_and_the_log_is_empty(box: SimBox) -> None:
    program = box.directory / "program.ptx"
    program.write_text(".version 8.0\n")
    link, image, log = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(64)
    options, values = (ctypes.c_int * 2)(3, 4), (ctypes.c_void_p * 2)(ctypes.addressof(log), 64)

    assert cuda.cuLinkCreate_v2(2, options, values, ctypes.byref(link)) == 0
    assert cuda.cuLinkAddFile_v2(link, 1, str(program).encode(), 0, None, None) == 0
    assert cuda.cuLinkComplete(link, ctypes.byref(image), None) == 0
    assert (values[1], bool(image)) == (None, True)
    assert cuda.cuLinkDestroy(link) == 0
