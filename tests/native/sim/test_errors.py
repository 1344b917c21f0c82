"""The names of results, and the right result for what is wrong."""

import json

import pytest
from cuda.bindings import driver

from tests.native.sim_box import Client, SimBox, machine, sim_box

ASK = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
def told(function, code):
    text = ctypes.c_char_p(b"before")
    result = getattr(cuda, function)(code, ctypes.byref(text))
    return [result, text.value.decode() if text.value is not None else None]
print(json.dumps([told(NAME, code) for code in CODES]))
"""


def told(box: SimBox, function: str, codes: list[int]) -> list[tuple[int, str | None]]:
    script = ASK.replace("NAME", repr(function)).replace("CODES", repr(codes))
    return [(code, text) for code, text in json.loads(box.python(script))]


def test_every_result_that_the_bindings_of_cuda_13_list_has_its_name() -> None:
    results = {int(one): one.name for one in driver.CUresult}

    with sim_box(machine(cuda_version=13050)) as newer:
        names = told(newer, "cuGetErrorName", list(results))
        texts = told(newer, "cuGetErrorString", list(results))

    assert names == [(0, name) for name in results.values()]
    assert all(code == 0 and text for code, text in texts)
    assert len({text for _, text in texts}) >= len(results) - 1  # two say the same of an image


@pytest.mark.parametrize(
    ("version", "code", "known"),
    [(12050, 226, False), (12080, 226, True), (13000, 917, False), (13010, 917, True)],
)
def test_a_driver_has_no_name_for_what_came_after_it(
    version: int, code: int, *, known: bool
) -> None:
    with sim_box(machine(cuda_version=version)) as made:
        ((result, name),) = told(made, "cuGetErrorName", [code])

    assert (result, name is not None) == (int(not known), known)


def test_what_is_no_result_has_no_name(box: SimBox) -> None:
    assert told(box, "cuGetErrorName", [9, 998, -1]) == [(1, None)] * 3


@pytest.mark.parametrize("function", ["cuFuncGetName", "cuKernelGetName"])
def test_a_name_of_no_function_is_an_invalid_value(client: Client, function: str) -> None:
    assert client(f"cuda.{function}(ctypes.byref(ctypes.c_char_p()), None)") == 1
    assert client(f"cuda.{function}(None, function('spin'))") == 1
