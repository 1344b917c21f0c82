"""Graphs and stream capture on the simulated driver, through NVIDIA's own cuda-bindings."""

from pathlib import Path

import pytest
from sim_box import SimBox

MIB = 1 << 20
HERE = Path(__file__).resolve().parent

CLIENT = "from graph_client import *\n"


def told(box: SimBox, script: str) -> list[str]:
    """What the script prints, line by line."""
    return box.python(CLIENT + script, PYTHONPATH=str(HERE)).splitlines()


def test_kernels_of_a_graph_take_their_time_at_every_launch(box: SimBox) -> None:
    told(
        box,
        """
g = graph()
first = kernel(g, [], 1000)
kernel(g, [first], 500)
e = ready(g)
launch(e)
launch(e)
done(cu.cuStreamSynchronize(stream))
""",
    )

    account = box.gpus.tenants()[0].devices[box.uuid]
    assert (account.launches, account.busy_ns) == (4, 3_000_000)


def test_a_graph_tells_its_nodes_and_edges(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
a = kernel(g, [], 1)
b = kernel(g, [], 1)
c = done(cu.cuGraphAddEmptyNode(g, [a, b], 2))
print(kinds(g), done(cu.cuGraphGetRootNodes(g))[1], done(cu.cuGraphGetEdges(g))[-1])
print(done(cu.cuGraphNodeGetDependencies(c))[-1], done(cu.cuGraphNodeGetDependentNodes(a))[-1])
done(cu.cuGraphRemoveDependencies(g, [b], [c], None, 1))
done(cu.cuGraphAddDependencies(g, [a], [b], None, 1))
print(done(cu.cuGraphGetRootNodes(g))[1])
done(cu.cuGraphDestroyNode(a))
print(kinds(g), done(cu.cuGraphGetRootNodes(g))[1])
""",
    )

    assert out == ["['KERNEL', 'KERNEL', 'EMPTY'] 2 2", "2 1", "1", "['KERNEL', 'EMPTY'] 2"]


def test_a_circle_cannot_be_instantiated(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
a, b = kernel(g, [], 1), kernel(g, [], 1)
done(cu.cuGraphAddDependencies(g, [a, b], [b, a], None, 2))
print(refused(cu.cuGraphInstantiate(g, 0)))
""",
    )

    assert out == ["CUDA_ERROR_INVALID_VALUE"]


def test_copies_fills_and_host_calls_of_a_graph_happen_in_their_order(box: SimBox) -> None:
    out = told(
        box,
        """
address = done(cu.cuMemAlloc(4096))
g = graph()
fill = cu.CUDA_MEMSET_NODE_PARAMS()
fill.dst, fill.value, fill.elementSize, fill.width, fill.height = address, 7, 1, 16, 2
fill.pitch = 32
set_ = done(cu.cuGraphAddMemsetNode(g, [], 0, fill, None))
target = (ctypes.c_char * 64)()
copy = cu.CUDA_MEMCPY3D()
copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
copy.srcDevice, copy.dstHost = address, ctypes.addressof(target)
copy.WidthInBytes, copy.Height, copy.Depth = 64, 1, 1
moved = done(cu.cuGraphAddMemcpyNode(g, [set_], 1, copy, None))
seen = []
called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(target.raw[0]))
host = cu.CUDA_HOST_NODE_PARAMS()
host.fn = ctypes.cast(called, ctypes.c_void_p).value
done(cu.cuGraphAddHostNode(g, [moved], 1, host))
done(cu.cuGraphLaunch(ready(g), stream))
print(list(target.raw) == ([7] * 16 + [0] * 16) * 2, seen)
""",
    )

    assert out == ["True [7]"]


def test_memory_of_a_graph_is_taken_at_its_first_launch_and_kept_until_trimmed(box: SimBox) -> None:
    out = told(
        box,
        """
def state():
    return memory("RESERVED_MEM_CURRENT") // MIB, (16 << 30) - done(cu.cuMemGetInfo())[0]
g = graph()
node, address = alloc(g, [], 3 * MIB)
free(g, [kernel(g, [node], 1)], address)
e = ready(g)
print(*state())
for _ in range(10):
    launch(e)
print(*state())
done(cu.cuGraphExecDestroy(e))
done(cu.cuStreamSynchronize(stream))
print(*state())
done(cu.cuDeviceGraphMemTrim(device))
print(*state(), memory("RESERVED_MEM_HIGH") // MIB)
""",
    )

    assert out == ["0 0", f"4 {4 * MIB}", f"4 {4 * MIB}", "0 0 4"]


def test_a_trim_takes_nothing_from_a_graph_that_still_runs(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
node, address = alloc(g, [], MIB)
free(g, [kernel(g, [node], 200_000)], address)
launch(ready(g))
done(cu.cuDeviceGraphMemTrim(device))
print(memory("RESERVED_MEM_CURRENT"))
done(cu.cuStreamSynchronize(stream))
done(cu.cuDeviceGraphMemTrim(device))
print(memory("RESERVED_MEM_CURRENT"))
""",
    )

    assert out == [str(2 * MIB), "0"]


def test_what_a_graph_leaves_allocated_must_be_freed_before_its_next_launch(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
_, address = alloc(g, [], 2 * MIB)
e = ready(g)
launch(e)
print(refused(cu.cuGraphLaunch(e, stream)))
done(cu.cuMemFreeAsync(address, stream))
launch(e)
done(cu.cuMemFree(address))
print(refused(cu.cuMemFree(address)))
done(cu.cuGraphExecDestroy(e))
e = ready(g, cu.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
launch(e)
launch(e)
print(memory("RESERVED_MEM_CURRENT") // MIB)
done(cu.cuDeviceGraphMemTrim(device))
print(memory("RESERVED_MEM_CURRENT") // MIB, memory("USED_MEM_CURRENT") // MIB)
""",
    )

    assert out == ["CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_VALUE", "2", "2 2"]


def test_graphs_share_memory_that_none_of_them_keeps(box: SimBox) -> None:
    out = told(
        box,
        """
def build(size, keep):
    g = graph()
    node, address = alloc(g, [], size)
    if not keep:
        free(g, [node], address)
    return ready(g), address
small, large, keeper = build(8 * MIB, False), build(32 * MIB, False), build(4 * MIB, True)
launch(small[0])
launch(large[0])
print(memory("RESERVED_MEM_CURRENT") // MIB)
launch(keeper[0])
print(memory("RESERVED_MEM_CURRENT") // MIB)
launch(large[0])
print(memory("RESERVED_MEM_CURRENT") // MIB)
""",
    )

    assert out == ["32", "32", "36"]


def test_graphs_that_two_threads_launch_share_nothing_that_one_is_about_to_keep(
    box: SimBox,
) -> None:
    """The first is between what it maps and what it allocates when the second comes."""
    out = told(
        box,
        """
import threading
begun, other = threading.Event(), threading.Event()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def wait(_):
    begun.set()
    other.wait(0.2)
host = cu.CUDA_HOST_NODE_PARAMS()
host.fn = ctypes.cast(wait, ctypes.c_void_p).value
slow, quick = graph(), graph(4 * MIB, keep=True)
alloc(slow, [done(cu.cuGraphAddHostNode(slow, [], 0, host))], 4 * MIB)
slow, quick = ready(slow), ready(quick)
first = threading.Thread(target=launch, args=[slow])
first.start()
begun.wait()
launch(quick)
other.set()
first.join()
print(memory("RESERVED_MEM_CURRENT") // MIB, memory("USED_MEM_CURRENT") // MIB)
""",
    )

    assert out == ["8 8"]


def test_an_address_is_used_again_where_its_free_came_before(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
node, address = alloc(g, [], MIB)
freed = free(g, [node], address)
_, beside = alloc(g, [node], MIB)
_, after = alloc(g, [freed], MIB)
print(address == after, address == beside)
print(refused(cu.cuGraphAddMemFreeNode(g, [], 0, done(cu.cuMemAlloc(4096)))))
print(refused(cu.cuGraphClone(g)))
e = ready(g)
print(refused(cu.cuGraphInstantiate(g, 0)))
""",
    )

    assert out == ["True False"] + ["CUDA_ERROR_INVALID_VALUE"] * 3


def test_graph_memory_beyond_the_gpu_is_refused_at_launch(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
alloc(g, [], 17 << 30)
e = ready(g)
print(refused(cu.cuGraphLaunch(e, stream)), memory("RESERVED_MEM_CURRENT"))
""",
    )

    assert out == ["CUDA_ERROR_OUT_OF_MEMORY 0"]


def test_work_put_into_a_captured_stream_becomes_a_graph_and_does_not_run(box: SimBox) -> None:
    out = told(
        box,
        """
other = done(cu.cuMemAlloc(4096))
capture()
address = done(cu.cuMemAllocAsync(MIB, stream))
done(cu.cuMemsetD8Async(address, 5, 16, stream))
done(cu.cuMemcpyAsync(other, address, 16, stream))
run(1000)
done(cu.cuMemFreeAsync(address, stream))
print(done(cu.cuStreamIsCapturing(stream)).name)
g = captured()
print(kinds(g), done(cu.cuGraphGetEdges(g))[-1], memory("RESERVED_MEM_CURRENT"))
before = bytearray(16)
done(cu.cuMemcpyDtoH(before, other, 16))
launch(ready(g))
done(cu.cuStreamSynchronize(stream))
after = bytearray(16)
done(cu.cuMemcpyDtoH(after, other, 16))
print(max(before), min(after))
""",
    )

    assert out == [
        "CU_STREAM_CAPTURE_STATUS_ACTIVE",
        "['MEM_ALLOC', 'MEMSET', 'MEMCPY', 'KERNEL', 'MEM_FREE'] 4 0",
        "0 5",
    ]
    assert box.gpus.tenants()[0].devices[box.uuid].launches == 1


def test_streams_join_a_capture_by_events_and_must_come_back(box: SimBox) -> None:
    out = told(
        box,
        """
side = done(cu.cuStreamCreate(1))
fork, back = done(cu.cuEventCreate(2)), done(cu.cuEventCreate(2))
for comes_back in True, False:
    capture()
    run(1)
    done(cu.cuEventRecord(fork, stream))
    done(cu.cuStreamWaitEvent(side, fork, 0))
    run(1, side)
    run(1)
    print(done(cu.cuStreamIsCapturing(side)).value)
    if comes_back:
        done(cu.cuEventRecord(back, side))
        done(cu.cuStreamWaitEvent(stream, back, 0))
        run(1)
        g = captured()
        print(kinds(g), done(cu.cuGraphGetEdges(g))[-1])
    else:
        print(refused(cu.cuStreamEndCapture(stream)))
    print(done(cu.cuStreamIsCapturing(side)).value)
print(refused(cu.cuEventQuery(fork)))
""",
    )

    assert out == [
        "1",
        "['KERNEL', 'KERNEL', 'KERNEL', 'KERNEL'] 4",
        "0",
        "1",
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "0",
        "CUDA_ERROR_CAPTURED_EVENT",
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("cu.cuStreamSynchronize(stream)", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuStreamQuery(stream)", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuCtxSynchronize()", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuMemAlloc(4096)", "STREAM_CAPTURE_UNSUPPORTED"),
        ("cu.cuStreamWaitEvent(stream, outside, 0)", "STREAM_CAPTURE_ISOLATION"),
        ("cu.cuStreamBeginCapture(stream, 2 and relaxed)", "INVALID_VALUE"),
    ],
)
def test_a_call_that_cannot_be_captured_fails_and_spoils_the_capture(
    box: SimBox, call: str, error: str
) -> None:
    out = told(
        box,
        f"""
relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
outside = done(cu.cuEventCreate(0))
done(cu.cuEventRecord(outside, 0))
capture()
print(refused({call}))
print(refused(cu.cuStreamEndCapture(stream)))
capture()
print(kinds(captured()))
""",
    )

    assert out == [f"CUDA_ERROR_{error}", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "[]"]


def test_a_relaxed_capture_lets_memory_be_allocated(box: SimBox) -> None:
    out = told(
        box,
        """
relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
capture(relaxed)
print(done(cu.cuMemAlloc(4096)) != 0)
captured()
capture()
print(done(cu.cuThreadExchangeStreamCaptureMode(relaxed)).name)
print(done(cu.cuMemAlloc(4096)) != 0, kinds(captured()))
""",
    )

    assert out == ["True", "CU_STREAM_CAPTURE_MODE_GLOBAL", "True []"]


def test_a_capture_can_go_on_in_a_graph_and_tells_about_itself(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
root = kernel(g, [], 1)
relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
done(cu.cuStreamBeginCaptureToGraph(stream, g, [root], None, 1, relaxed))
status, number, inside, after, *_ , count = done(cu.cuStreamGetCaptureInfo(stream))
print(status.value, int(number) > 0, int(inside) == int(g), count)
run(1)
done(cu.cuStreamUpdateCaptureDependencies(stream, [root], None, 1, 1))
run(1)
print(int(captured()) == int(g), kinds(g), done(cu.cuGraphNodeGetDependentNodes(root))[-1])
""",
    )

    assert out == ["1 True True 1", "True ['KERNEL', 'KERNEL', 'KERNEL'] 2"]


def test_an_executable_graph_is_updated_from_one_of_the_same_shape(box: SimBox) -> None:
    told(
        box,
        """
def build(microseconds, count=2):
    g = graph()
    after = []
    for _ in range(count):
        after = [kernel(g, after, microseconds)]
    return g, after[0]
g, last = build(1000)
e = ready(g)
done(cu.cuGraphExecUpdate(e, build(10)[0]))
launch(e)  # 20
code, info = cu.cuGraphExecUpdate(e, build(10, 3)[0])
assert code == cu.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, code
done(cu.cuGraphExecKernelNodeSetParams(e, last, shape(100)))
launch(e)  # 110
done(cu.cuGraphNodeSetEnabled(e, last, 0))
assert done(cu.cuGraphNodeGetEnabled(e, last)) == 0
launch(e)  # 10
done(cu.cuStreamSynchronize(stream))
""",
    )

    assert box.gpus.tenants()[0].devices[box.uuid].busy_ns == 140_000


def test_a_child_graph_runs_in_its_parent(box: SimBox) -> None:
    out = told(
        box,
        """
inner = graph()
kernel(inner, [], 100)
g = graph()
node = done(cu.cuGraphAddChildGraphNode(g, [], 0, inner))
kernel(g, [node], 10)
done(cu.cuGraphDestroy(inner))
print(kinds(done(cu.cuGraphChildGraphNodeGetGraph(node))), kinds(done(cu.cuGraphClone(g))))
launch(ready(g))
done(cu.cuStreamSynchronize(stream))
with_memory = graph()
alloc(with_memory, [], MIB)
print(refused(cu.cuGraphAddChildGraphNode(g, [], 0, with_memory)))
""",
    )

    assert out == ["['KERNEL'] ['GRAPH', 'KERNEL']", "CUDA_ERROR_INVALID_VALUE"]
    assert box.gpus.tenants()[0].devices[box.uuid].busy_ns == 110_000


def test_events_recorded_by_a_graph_happen_when_it_gets_there(box: SimBox) -> None:
    out = told(
        box,
        """
start, end = done(cu.cuEventCreate(0)), done(cu.cuEventCreate(0))
g = graph()
first = done(cu.cuGraphAddEventRecordNode(g, [], 0, start))
last = done(cu.cuGraphAddEventRecordNode(g, [kernel(g, [first], 5000)], 1, end))
print(int(done(cu.cuGraphEventRecordNodeGetEvent(last))) == int(end))
launch(ready(g))
done(cu.cuEventSynchronize(end))
print(round(done(cu.cuEventElapsedTime(start, end))))
""",
    )

    assert out == ["True", "5"]


def test_a_pointer_of_a_graph_tells_its_gpu_and_has_no_handle_for_others(box: SimBox) -> None:
    out = told(
        box,
        """
g = graph()
_, address = alloc(g, [], MIB, 1)
ordinal = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
print(done(cu.cuPointerGetAttribute(ordinal, address)))
print(refused(cu.cuIpcGetMemHandle(address)))
""",
    )

    assert out == ["1", "CUDA_ERROR_INVALID_VALUE"]
