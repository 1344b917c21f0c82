"""Functions of the program that streams call: when, in which order, and what they may not do."""

import ctypes
import os

from tests.native.programs.host_client import *
from tests.native.programs.virtual_client import begin, cuda

MACHINE = {"cuda_version": 13040}
assert begin() == 0


def test_a_function_is_called_after_the_work_before_it() -> None:
    one = stream()
    spin(one, 50_000_000)
    done = event(one)
    assert launch(one, lambda: len(notes)) == 0
    assert notes == []
    assert cuda.cuStreamSynchronize(one) == 0
    assert (notes, cuda.cuEventQuery(done)) == ([0], 0)


def test_work_after_a_function_waits_for_it_and_other_streams_do_not() -> None:
    one, other = stream(), stream()
    launch(one, lambda: gate.wait(60))
    after = event(one)
    spin(other, 1_000_000)
    assert cuda.cuStreamSynchronize(other) == 0
    assert [cuda.cuStreamQuery(one), cuda.cuEventQuery(after)] == [600, 600]
    gate.set()
    assert cuda.cuStreamSynchronize(one) == 0
    assert (notes, cuda.cuEventQuery(after)) == ([True], 0)


def test_functions_of_a_stream_are_called_in_their_order() -> None:
    one = stream()
    assert {launch(one, lambda n=n: n) for n in range(100)} == {0}  # type: ignore[misc]
    cuda.cuCtxSynchronize()
    assert notes == list(range(100))


def test_a_function_that_may_begin_is_not_held_up_by_an_earlier_one_that_may_not() -> None:
    """The other stream has a kernel of an hour before its function."""
    one, other = stream(), stream()
    spin(other, 3_600_000_000_000)
    launch(other, lambda: "never")
    launch(one, lambda: "now")
    assert cuda.cuStreamSynchronize(one) == 0
    assert notes == ["now"]


def test_a_callback_is_told_its_stream_and_no_error() -> None:
    one = stream()
    assert [add_callback(one, 77), add_callback(None, 78), cuda.cuCtxSynchronize()] == [0, 0, 0]
    assert sorted(notes, key=lambda note: note[2]) == [[one.value, 0, 77], [0, 0, 78]]


def test_a_function_may_not_use_the_driver() -> None:
    one = stream()

    def calls() -> list[int]:
        nothing = ctypes.c_uint64(0)
        return [cuda.cuCtxSynchronize(), cuda.cuStreamQuery(one), cuda.cuMemFree_v2(nothing)]

    launch(one, calls)
    cuda.cuStreamSynchronize(one)
    assert (notes, cuda.cuCtxSynchronize()) == ([[800, 800, 800]], 0)


def test_what_cannot_be_called_is_invalid() -> None:
    assert cuda.cuLaunchHostFunc(None, None, None) == 1
    assert [cuda.cuLaunchHostFunc_v2(None, function(int), None, how) for how in (1, 2)] == [0, 1]
    assert cuda.cuStreamAddCallback(None, None, None, 0) == 1
    assert add_callback(None, 0, 1) == 1
    assert cuda.cuCtxSynchronize() == 0


def test_bytes_behind_a_function_move_after_it() -> None:
    one, room = stream(), managed(16)
    spin(one, 20_000_000)
    for value in (1, 2):
        fill(room, value, one)
        launch(one, lambda: room[5])
    cuda.cuStreamSynchronize(one)
    assert notes == [1, 2]


def test_bytes_do_not_wait_forever_for_a_function_that_waits_for_the_program() -> None:
    one, room = stream(), managed(16)
    launch(one, lambda: gate.wait(60))
    assert fill(room, 3, one) == 0
    gate.set()
    assert cuda.cuStreamSynchronize(one) == 0
    assert (notes, room[0]) == ([True], 3)


def test_a_graphs_functions_are_called_when_it_comes_to_them() -> None:
    one, room = stream(), managed(16)
    assert cuda.cuStreamBeginCapture_v2(one, 0) == 0
    for value in (1, 2):
        fill(room, value, one)
        launch(one, lambda: room[5])
    code, graph = captured(one)
    assert (code, notes) == (0, [])
    spin(one, 20_000_000)
    assert [cuda.cuGraphLaunch(graph, one) for _ in range(2)] == [0, 0]
    assert cuda.cuStreamSynchronize(one) == 0
    assert notes == [1, 2, 1, 2]


def test_a_callback_cannot_be_captured() -> None:
    one = stream()
    assert cuda.cuStreamBeginCapture_v2(one, 0) == 0
    assert [add_callback(one), captured(one)[0]] == [900, 901]
    assert notes == []


def test_a_forked_child_calls_its_own_functions() -> None:
    launch(None, lambda: gate.wait(60))
    child = os.fork()
    if child == 0:
        codes = [begin(), launch(None, lambda: 5), cuda.cuCtxSynchronize()]
        os._exit(0 if codes == [0] * 3 and notes == [5] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.set()
    assert cuda.cuCtxSynchronize() == 0
    assert notes == [True]
