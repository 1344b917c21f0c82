"""Graphs on the simulated driver, through NVIDIA's own cuda-bindings."""

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox


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
done(cu.cuStreamSynchronize(stream))
print(list(target.raw) == ([7] * 16 + [0] * 16) * 2, seen)
""",
    )

    assert out == ["True [7]"]


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
