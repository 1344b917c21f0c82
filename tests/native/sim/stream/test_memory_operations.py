"""Waiting for values in memory and writing them, in streams of the simulated driver."""

from tests.native.sim_box import SimBox

INVALID = "CUDA_ERROR_INVALID_VALUE"
OPERATIONS = """
import ctypes
from tests.native.programs.stream_client import *
from tests.native.programs.graph_client import cu, done, refused, stream, device, graph
from tests.native.programs.graph_client import kernel, ready, capture, captured
from tests.native.programs.graph_client import kinds
KINDS = cu.CUstreamBatchMemOpType
memory = int(done(cu.cuMemAlloc(4096)))
cu.cuMemsetD8(memory, 0, 4096)
page = done(cu.cuMemHostAlloc(4096, 0))
words = (ctypes.c_uint32 * 1024).from_address(int(page))
AT_LEAST, EQUAL, ANY, NOR = range(4)
def wait(where, address, value, condition=AT_LEAST):
    return cu.cuStreamWaitValue32(where, address, value, condition)
def write(where, address, value):
    return cu.cuStreamWriteValue32(where, address, value, 0)
def value(address, size=4):
    back = ctypes.create_string_buffer(size)
    done(cu.cuMemcpyDtoH(back, address, size) + (None,))
    return int.from_bytes(back.raw, "little")
def busy_now(where):
    return int(cu.cuStreamQuery(where)[0]) == 600
def operation(kind, address, number, flags=0):
    made = cu.CUstreamBatchMemOpParams()
    made.operation = getattr(KINDS, "CU_STREAM_MEM_OP_" + kind)
    for side in (made.waitValue, made.writeValue):
        side.operation, side.address, side.flags = made.operation, address, flags
        side.value64 = number
    return made
"""


def told(box: SimBox, script: str) -> list[str]:
    return box.python(OPERATIONS + script).splitlines()


def test_a_stream_waits_until_the_host_writes_the_value(box: SimBox) -> None:
    out = told(
        box,
        """
s = new()
wait(s, int(page), 7)
busy(s, 10)
write(s, memory, 1)
print(busy_now(s), value(memory))
words[0] = 8
cu.cuStreamSynchronize(s)
print(busy_now(s), value(memory))
""",
    )

    assert out == ["True 0", "False 1"]
    assert box.gpus.tenants()[0].devices[box.uuid].busy_ns == 10_001_008  # with the memset


def test_one_stream_waits_for_what_another_writes(box: SimBox) -> None:
    out = told(
        box,
        """
one, other, last = new(), new(), new()
wait(last, memory + 4, 1)
wait(one, memory, 1)
write(one, memory + 4, 1)     # behind a wait: not before it
print([busy_now(s) for s in (one, last)])
write(other, memory, 1)
print([busy_now(s) for s in (one, last)])
""",
    )

    assert out == ["[True, True]", "[False, False]"]


def test_conditions_are_those_that_are_documented(box: SimBox) -> None:
    out = told(
        box,
        """
def holds(found, number, condition, size=32):
    write(0, memory, found & 0xffffffff)
    cu.cuStreamWriteValue64(0, memory + 8, found, 0)
    s = new()
    if size == 32:
        wait(s, memory, number, condition)
    else:
        cu.cuStreamWaitValue64(s, memory + 8, number, condition)
    held = busy_now(s)
    if held:
        cu.cuStreamWriteValue64(0, memory, number, 0)   # lets any of them go on, but the last
        cu.cuStreamWriteValue64(0, memory + 8, number, 0)
    return not held
print(holds(5, 5, AT_LEAST), holds(4, 5, AT_LEAST), holds(1, 0xffffffff, AT_LEAST))
print(holds(5, 5, EQUAL), holds(6, 5, EQUAL), holds(6, 2, ANY), holds(4, 2, ANY))
print(holds(0xfffffffe, 0, NOR), holds(0xffffffff, 0, NOR))
print(holds(1 << 40, 1, AT_LEAST, 64), holds(0, 1 << 40, AT_LEAST, 64))
""",
    )

    assert out == ["True False True", "True False True False", "True False", "True False"]


def test_a_batch_is_done_in_its_order_and_checked_as_a_whole(box: SimBox) -> None:
    out = told(
        box,
        """
def batch(*operations, where=stream, flags=0):
    return cu.cuStreamBatchMemOp(where, len(operations), list(operations), flags)
first = operation("WRITE_VALUE_64", memory, 1 << 40)
done(batch(first, operation("WAIT_VALUE_64", memory, 1 << 40),
           operation("WRITE_VALUE_32", memory + 8, 9)) + (None,))
print(value(memory, 8) == 1 << 40, value(memory + 8), busy_now(stream))
managed = int(done(cu.cuMemAllocManaged(4096, 1)))
for wrong in (operation("WAIT_VALUE_32", memory + 2, 0), operation("WRITE_VALUE_32", managed, 0),
              operation("WAIT_VALUE_64", memory, 0, 4), operation("WRITE_VALUE_32", memory, 0, 1)):
    print(refused(batch(operation("WRITE_VALUE_32", memory + 8, 0), wrong)))
print(refused(batch(first, flags=1)), refused(batch(*[first] * 256)))
print(refused(batch(operation("WAIT_VALUE_32", memory, 0, 1 << 30))))
print(value(memory + 8))
""",
    )

    assert out == [
        "True 9 False",
        *[INVALID] * 4,
        f"{INVALID} {INVALID}",
        "CUDA_ERROR_NOT_SUPPORTED",
        "9",
    ]


def test_a_graph_has_nodes_of_them_and_a_capture_makes_such(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
params = cu.CUDA_BATCH_MEM_OP_NODE_PARAMS()
params.ctx, params.count = done(cu.cuCtxGetCurrent()), 1
params.paramArray = [operation("WRITE_VALUE_32", memory, 3)]
node = done(cu.cuGraphAddBatchMemOpNode(g, None, 0, params))
print(kinds(g), done(cu.cuGraphBatchMemOpNodeGetParams(node)).count)
e = ready(g)
cu.cuGraphLaunch(e, stream)
print(value(memory))
params.paramArray = [operation("WRITE_VALUE_32", memory, 4)]
cu.cuGraphExecBatchMemOpNodeSetParams(e, node, params)
cu.cuGraphLaunch(e, stream)
print(value(memory))
capture()
wait(stream, memory, 5)
write(stream, memory + 4, 6)
made = captured()
cu.cuGraphLaunch(ready(made), stream)
print(kinds(made), busy_now(stream), value(memory + 4))
write(new(), memory, 5)
print(busy_now(stream), value(memory + 4))
""",
    )

    assert out == [
        "['BATCH_MEM_OP'] 1",
        "3",
        "4",
        "['BATCH_MEM_OP', 'BATCH_MEM_OP'] True 0",
        "False 6",
    ]


def test_a_context_that_ends_waits_for_nothing_any_more(box: SimBox) -> None:
    assert told(
        box,
        """
wait(stream, memory, 5)
cu.cuDevicePrimaryCtxReset(device)
print("ended")
""",
    ) == ["ended"]
