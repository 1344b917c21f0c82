"""Waiting for values in memory and writing them, in streams of the simulated driver."""

import ctypes
from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import (
    INVALID,
    capture,
    captured,
    device,
    done,
    graph,
    kinds,
    ready,
    refused,
    stream,
)
from tests.native.programs.stream_client import *
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
AT_LEAST, EQUAL, ANY, NOR = range(4)

memory = int(done(cu.cuMemAlloc(4096)))
cu.cuMemsetD8(memory, 0, 4096)


def wait(where: Any, address: int, value: int, condition: int = AT_LEAST) -> Any:
    return cu.cuStreamWaitValue32(where, address, value, condition)


def write(where: Any, address: int, value: int) -> Any:
    return cu.cuStreamWriteValue32(where, address, value, 0)


def value(address: int, size: int = 4) -> int:
    back = ctypes.create_string_buffer(size)
    done((*cu.cuMemcpyDtoH(back, address, size), None))
    return int.from_bytes(back.raw, "little")


def busy_now(where: Any) -> bool:
    return int(cu.cuStreamQuery(where)[0]) == 600


def operation(kind: str, address: int, number: int, flags: int = 0) -> Any:
    made = cu.CUstreamBatchMemOpParams()
    made.operation = getattr(cu.CUstreamBatchMemOpType, "CU_STREAM_MEM_OP_" + kind)
    for side in (made.waitValue, made.writeValue):
        side.operation, side.address, side.flags = made.operation, address, flags
        side.value64 = number
    return made


def test_a_stream_waits_until_the_host_writes_the_value(box: SimBox) -> None:
    s = new()
    gate[0] = 0
    wait(s, page, 7)
    busy(s, 10)
    write(s, memory, 1)
    assert (busy_now(s), value(memory)) == (True, 0)
    gate[0] = 8
    cu.cuStreamSynchronize(s)
    assert (busy_now(s), value(memory)) == (False, 1)
    assert box.account().busy_ns == 10_001_008  # with the memset


def test_one_stream_waits_for_what_another_writes() -> None:
    one, other, last = new(), new(), new()
    wait(last, memory + 4, 1)
    wait(one, memory, 1)
    write(one, memory + 4, 1)  # behind a wait: not before it
    assert [busy_now(s) for s in (one, last)] == [True, True]
    write(other, memory, 1)
    assert [busy_now(s) for s in (one, last)] == [False, False]


def test_conditions_are_those_that_are_documented() -> None:
    def holds(found: int, number: int, condition: int, size: int = 32) -> bool:
        write(0, memory, found & 0xFFFFFFFF)
        cu.cuStreamWriteValue64(0, memory + 8, found, 0)
        s = new()
        if size == 32:
            wait(s, memory, number, condition)
        else:
            cu.cuStreamWaitValue64(s, memory + 8, number, condition)
        held = busy_now(s)
        if held:
            cu.cuStreamWriteValue64(0, memory, number, 0)  # all but the last can go on
            cu.cuStreamWriteValue64(0, memory + 8, number, 0)
        return not held

    for found, number, condition, it_holds in (
        (5, 5, AT_LEAST, True),
        (4, 5, AT_LEAST, False),
        (1, 0xFFFFFFFF, AT_LEAST, True),
        (5, 5, EQUAL, True),
        (6, 5, EQUAL, False),
        (6, 2, ANY, True),
        (4, 2, ANY, False),
        (0xFFFFFFFE, 0, NOR, True),
        (0xFFFFFFFF, 0, NOR, False),
    ):
        assert holds(found, number, condition) == it_holds, (found, number, condition)
    assert holds(1 << 40, 1, AT_LEAST, 64)
    assert not holds(0, 1 << 40, AT_LEAST, 64)


def test_a_batch_is_done_in_its_order_and_checked_as_a_whole() -> None:
    def batch(*operations: Any, flags: int = 0) -> Any:
        answer = cu.cuStreamBatchMemOp(stream, len(operations), list(operations), flags)
        return *answer, None

    first = operation("WRITE_VALUE_64", memory, 1 << 40)
    written = operation("WRITE_VALUE_32", memory + 8, 9)
    done(batch(first, operation("WAIT_VALUE_64", memory, 1 << 40), written))
    assert (value(memory, 8), value(memory + 8), busy_now(stream)) == (1 << 40, 9, False)

    managed = int(done(cu.cuMemAllocManaged(4096, 1)))
    again = operation("WRITE_VALUE_32", memory + 8, 0)
    for wrong in (
        operation("WAIT_VALUE_32", memory + 2, 0),
        operation("WRITE_VALUE_32", managed, 0),
        operation("WAIT_VALUE_64", memory, 0, 4),
        operation("WRITE_VALUE_32", memory, 0, 1),
    ):
        assert refused(batch(again, wrong)) == INVALID
    assert refused(batch(first, flags=1)) == refused(batch(*[first] * 256)) == INVALID
    flush = operation("WAIT_VALUE_32", memory, 0, 1 << 30)
    assert refused(batch(flush)) == "CUDA_ERROR_NOT_SUPPORTED"
    assert value(memory + 8) == 9


def test_a_graph_has_nodes_of_them_and_a_capture_makes_such() -> None:
    g = graph()
    params = cu.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    params.ctx, params.count = done(cu.cuCtxGetCurrent()), 1
    params.paramArray = [operation("WRITE_VALUE_32", memory, 3)]
    node = done(cu.cuGraphAddBatchMemOpNode(g, None, 0, params))
    assert kinds(g) == ["BATCH_MEM_OP"]
    assert done(cu.cuGraphBatchMemOpNodeGetParams(node)).count == 1
    e = ready(g)
    cu.cuGraphLaunch(e, stream)
    assert value(memory) == 3
    params.paramArray = [operation("WRITE_VALUE_32", memory, 4)]
    cu.cuGraphExecBatchMemOpNodeSetParams(e, node, params)
    cu.cuGraphLaunch(e, stream)
    assert value(memory) == 4

    capture()
    wait(stream, memory, 5)
    write(stream, memory + 4, 6)
    made = captured()
    cu.cuGraphLaunch(ready(made), stream)
    assert kinds(made) == ["BATCH_MEM_OP"] * 2
    assert (busy_now(stream), value(memory + 4)) == (True, 0)
    write(new(), memory, 5)
    assert (busy_now(stream), value(memory + 4)) == (False, 6)


def test_a_context_that_ends_waits_for_nothing_any_more() -> None:
    wait(stream, memory, 5)

    assert int(cu.cuDevicePrimaryCtxReset(device)[0]) == 0
