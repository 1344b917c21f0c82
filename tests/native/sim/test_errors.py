"""The names of results, and the right result for what is wrong."""

import ctypes

from cuda.bindings import driver

from tests.native.programs.sim_client import cuda, function, init
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}


def told(code: int, name: str = "cuGetErrorName") -> tuple[int, str | None]:
    text = ctypes.c_char_p(b"before")
    result = getattr(cuda, name)(code, ctypes.byref(text))
    return result, None if text.value is None else text.value.decode()


@on(cuda_version=13050)
def test_every_result_that_the_bindings_of_cuda_13_list_has_its_name() -> None:
    results = {int(one): one.name for one in driver.CUresult}
    texts = [told(code, "cuGetErrorString") for code in results]

    assert {code: told(code) for code in results} == {n: (0, name) for n, name in results.items()}
    assert all(code == 0 and text for code, text in texts)
    assert len({text for _, text in texts}) >= len(results) - 1  # two say the same of an image


@on(cuda_version=12050)
@on(cuda_version=12080)
@on(cuda_version=13000)
@on(cuda_version=13010)
def test_a_driver_has_no_name_for_what_came_after_it(box: SimBox) -> None:
    version = box.machine.cuda_version
    for code, since in ((226, 12080), (917, 13010), (9, 10**6), (998, 10**6), (-1, 10**6)):
        result, name = told(code)
        assert (result == 0) == (name is not None) == (version >= since), code


def test_a_name_of_no_function_is_an_invalid_value() -> None:
    assert init() == 0
    for ask in (cuda.cuFuncGetName, cuda.cuKernelGetName):
        assert ask(ctypes.byref(ctypes.c_char_p()), None) == ask(None, function("spin")) == 1
