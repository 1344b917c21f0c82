"""Linking on the simulated driver, through cuda-bindings."""

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox, machine, sim_box

LINK = """
PTX = cu.CUjitInputType.CU_JIT_INPUT_PTX
CUBIN = cu.CUjitInputType.CU_JIT_INPUT_CUBIN
def text(variables):
    return b".version 8.0\\n.target sm_70\\n.visible .global .b8 big[%d];\\n" % variables
def linked(*inputs):
    link = done(cu.cuLinkCreate(0, [], []))
    for kind, image in inputs:
        added = cu.cuLinkAddData(link, kind, image, len(image), b"name", 0, [], [])
        if int(added[0]) != 0:
            return added
    image, size = done(cu.cuLinkComplete(link))
    found = ctypes.string_at(image, size)
    cu.cuLinkDestroy(link)
    return found
def held():
    free, total = done(cu.cuMemGetInfo())
    return total - free
"""


def test_what_is_linked_loads_and_takes_what_its_inputs_would() -> None:
    with sim_box(machine(context_bytes=1 << 20)) as box:
        out = told(
            box,
            LINK
            + """
def taken(image):
    before = held()
    module = done(cu.cuModuleLoadData(image))
    assert done(cu.cuModuleGetFunction(module, b"any"))
    return held() - before
one = linked((PTX, text(1 << 20)), (PTX, text(2 << 20)))
print(one[:4], taken(one) == taken(text(3 << 20)))
print(linked((CUBIN, one)) == one)
print(taken(linked((CUBIN, one), (PTX, text(1 << 20)))) - taken(one) >= 1 << 20)
""",
        )

    assert out == [r"b'\x7fELF' True", "True", "True"]


def test_what_is_no_program_is_not_linked(box: SimBox) -> None:
    out = told(
        box,
        LINK
        + """
print(refused(linked((PTX, b"no program"))))
print(refused(linked((CUBIN, text(4)))))
link = done(cu.cuLinkCreate(0, [], []))
print(refused(cu.cuLinkComplete(link)))
print(refused(cu.cuLinkAddFile(link, PTX, b"/nowhere", 0, [], [])))
cu.cuLinkDestroy(link)
""",
    )

    assert out == [
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_FILE_NOT_FOUND",
    ]


def test_a_file_is_linked_and_the_log_is_empty(box: SimBox) -> None:
    program = box.directory / "program.ptx"
    program.write_text(".version 8.0\n")

    out = told(
        box,
        f"""
cuda = ctypes.CDLL("libcuda.so.1")
link, image = ctypes.c_void_p(), ctypes.c_void_p()
options, values = (ctypes.c_int * 2)(3, 4), (ctypes.c_void_p * 2)()
log = ctypes.create_string_buffer(64)
values[0], values[1] = ctypes.addressof(log), 64
print(cuda.cuLinkCreate_v2(2, options, values, ctypes.byref(link)))
print(cuda.cuLinkAddFile_v2(link, 1, b"{program}", 0, None, None))
print(cuda.cuLinkComplete(link, ctypes.byref(image), None), values[1], bool(image))
print(cuda.cuLinkDestroy(link))
""",
    )

    assert out == ["0", "0", "0 None True", "0"]
