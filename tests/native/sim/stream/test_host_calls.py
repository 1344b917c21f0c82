"""Functions of the program that streams call: when, in which order, and what they may not do."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.native.sim_box import SimBox, machine, sim_box


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box(machine(cuda_version=13040)) as made:
        yield made


def told(box: SimBox, script: str) -> Any:
    """What a program with a context tells that has the words of host_client."""
    begin = """
import json
from tests.native.programs.host_client import *
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def tell(**what):
    print(json.dumps(what))
"""
    return json.loads(box.python(begin + script).splitlines()[-1])


def test_a_function_is_called_after_the_work_before_it(box: SimBox) -> None:
    answer = told(
        box,
        """
one = stream()
spin(one, 50_000_000)
done = event(one)
codes = [launch(one, lambda: len(notes))]
before = list(notes)
codes.append(cuda.cuStreamSynchronize(one))
tell(codes=codes, before=before, notes=notes, done=cuda.cuEventQuery(done))
""",
    )

    assert answer == {"codes": [0, 0], "before": [], "notes": [0], "done": 0}


def test_work_after_a_function_waits_for_it(box: SimBox) -> None:
    answer = told(
        box,
        """
one = stream()
launch(one, lambda: gate.wait(60))
after = event(one)
waiting = [cuda.cuStreamQuery(one), cuda.cuEventQuery(after)]
gate.set()
tell(waiting=waiting, synced=cuda.cuStreamSynchronize(one), notes=notes,
     after=cuda.cuEventQuery(after))
""",
    )

    assert answer == {"waiting": [600, 600], "synced": 0, "notes": [True], "after": 0}


def test_functions_of_a_stream_are_called_in_their_order(box: SimBox) -> None:
    answer = told(
        box,
        """
one = stream()
codes = [launch(one, lambda n=n: n) for n in range(100)]
cuda.cuCtxSynchronize()
tell(codes=set(codes) == {0}, notes=notes)
""",
    )

    assert answer == {"codes": True, "notes": list(range(100))}


def test_a_function_that_may_begin_is_not_held_up_by_an_earlier_one_that_may_not(
    box: SimBox,
) -> None:
    """The other stream has a kernel of an hour before its function."""
    answer = told(
        box,
        """
one, other = stream(), stream()
spin(other, 3_600_000_000_000)
launch(other, lambda: "never")
launch(one, lambda: "now")
tell(code=cuda.cuStreamSynchronize(one), notes=notes)
""",
    )

    assert answer == {"code": 0, "notes": ["now"]}


def test_other_streams_work_while_a_function_runs(box: SimBox) -> None:
    answer = told(
        box,
        """
one, other = stream(), stream()
launch(one, lambda: gate.wait(60))
spin(other, 1_000_000)
code = cuda.cuStreamSynchronize(other)
running = cuda.cuStreamQuery(one)
gate.set()
tell(code=code, running=running, last=cuda.cuStreamSynchronize(one))
""",
    )

    assert answer == {"code": 0, "running": 600, "last": 0}


def test_a_callback_is_told_its_stream_and_no_error(box: SimBox) -> None:
    answer = told(
        box,
        """
one = stream()
codes = [add_callback(one, 77), add_callback(None, 78), cuda.cuCtxSynchronize()]
tell(codes=codes, notes=sorted(notes, key=lambda note: note[2]), stream=one.value)
""",
    )

    assert answer["codes"] == [0, 0, 0]
    assert answer["notes"] == [[answer["stream"], 0, 77], [0, 0, 78]]


def test_a_function_may_not_use_the_driver(box: SimBox) -> None:
    answer = told(
        box,
        """
one = stream()
launch(one, lambda: [cuda.cuCtxSynchronize(), cuda.cuStreamQuery(one),
                     cuda.cuMemFree_v2(ctypes.c_uint64(0))])
cuda.cuStreamSynchronize(one)
tell(notes=notes, later=cuda.cuCtxSynchronize())
""",
    )

    assert answer == {"notes": [[800, 800, 800]], "later": 0}


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("cuda.cuLaunchHostFunc(None, None, None)", 1),
        ("cuda.cuLaunchHostFunc_v2(None, function(int), None, 1)", 0),
        ("cuda.cuLaunchHostFunc_v2(None, function(int), None, 2)", 1),
        ("cuda.cuStreamAddCallback(None, None, None, 0)", 1),
        ("add_callback(None, 0, 1)", 1),
    ],
)
def test_what_cannot_be_called_is_invalid(box: SimBox, call: str, result: int) -> None:
    assert told(box, f"tell(code={call}, end=cuda.cuCtxSynchronize())") == {
        "code": result,
        "end": 0,
    }


def test_bytes_behind_a_function_move_after_it(box: SimBox) -> None:
    answer = told(
        box,
        """
one, room = stream(), managed(16)
spin(one, 20_000_000)
for value in (1, 2):
    fill(room, value, one)
    launch(one, lambda: room[5])
cuda.cuStreamSynchronize(one)
tell(notes=notes)
""",
    )

    assert answer == {"notes": [1, 2]}


def test_bytes_do_not_wait_forever_for_a_function_that_waits_for_the_program(box: SimBox) -> None:
    answer = told(
        box,
        """
one, room = stream(), managed(16)
launch(one, lambda: gate.wait(60))
code = fill(room, 3, one)
gate.set()
tell(code=code, synced=cuda.cuStreamSynchronize(one), notes=notes, value=room[0])
""",
    )

    assert answer == {"code": 0, "synced": 0, "notes": [True], "value": 3}


def test_a_graphs_functions_are_called_when_it_comes_to_them(box: SimBox) -> None:
    answer = told(
        box,
        """
one, room = stream(), managed(16)
assert cuda.cuStreamBeginCapture_v2(one, 0) == 0
for value in (1, 2):
    fill(room, value, one)
    launch(one, lambda: room[5])
code, graph = captured(one)
idle = list(notes)
spin(one, 20_000_000)
codes = [code, *[cuda.cuGraphLaunch(graph, one) for _ in range(2)], cuda.cuStreamSynchronize(one)]
tell(idle=idle, codes=codes, notes=notes)
""",
    )

    assert answer == {"idle": [], "codes": [0, 0, 0, 0], "notes": [1, 2, 1, 2]}


def test_a_callback_cannot_be_captured(box: SimBox) -> None:
    answer = told(
        box,
        """
one = stream()
assert cuda.cuStreamBeginCapture_v2(one, 0) == 0
tell(codes=[add_callback(one), captured(one)[0]], notes=notes)
""",
    )

    assert answer == {"codes": [900, 901], "notes": []}


def test_a_forked_child_calls_its_own_functions(box: SimBox) -> None:
    answer = told(
        box,
        """
import os
launch(None, lambda: gate.wait(60))
child = os.fork()
if child == 0:
    device = ctypes.c_void_p()
    codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(device), 0),
             cuda.cuCtxSetCurrent(device), launch(None, lambda: 5), cuda.cuCtxSynchronize()]
    os._exit(0 if codes == [0] * 5 and notes == [5] else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.set()
tell(child=status, code=cuda.cuCtxSynchronize(), notes=notes)
""",
    )

    assert answer == {"child": 0, "code": 0, "notes": [True]}
