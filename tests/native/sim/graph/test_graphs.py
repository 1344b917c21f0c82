"""Graphs on the simulated driver, through NVIDIA's own cuda-bindings."""

import ctypes
from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}


def test_kernels_of_a_graph_take_their_time_at_every_launch(box: SimBox) -> None:
    g = graph()
    first = kernel(g, [], 1000)
    kernel(g, [first], 500)
    e = ready(g)
    launch(e)
    launch(e)
    sync()

    assert (box.account().launches, box.account().busy_ns) == (4, 3_000_000)


def test_a_graph_tells_its_nodes_and_edges() -> None:
    g = graph()
    a, b = kernel(g, [], 1), kernel(g, [], 1)
    c = done(cu.cuGraphAddEmptyNode(g, [a, b], 2))
    assert kinds(g) == ["KERNEL", "KERNEL", "EMPTY"]
    assert (done(cu.cuGraphGetRootNodes(g))[1], done(cu.cuGraphGetEdges(g))[-1]) == (2, 2)
    assert done(cu.cuGraphNodeGetDependencies(c))[-1] == 2
    assert done(cu.cuGraphNodeGetDependentNodes(a))[-1] == 1

    done(cu.cuGraphRemoveDependencies(g, [b], [c], None, 1))
    done(cu.cuGraphAddDependencies(g, [a], [b], None, 1))
    assert done(cu.cuGraphGetRootNodes(g))[1] == 1

    done(cu.cuGraphDestroyNode(a))
    assert (kinds(g), done(cu.cuGraphGetRootNodes(g))[1]) == (["KERNEL", "EMPTY"], 2)


def test_a_circle_cannot_be_instantiated() -> None:
    g = graph()
    a, b = kernel(g, [], 1), kernel(g, [], 1)
    done(cu.cuGraphAddDependencies(g, [a, b], [b, a], None, 2))

    assert refused(cu.cuGraphInstantiate(g, 0)) == INVALID


def test_copies_fills_and_host_calls_of_a_graph_happen_in_their_order() -> None:
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
    launch(ready(g))
    sync()

    assert (list(target.raw), seen) == (([7] * 16 + [0] * 16) * 2, [7])


def test_an_executable_graph_is_updated_from_one_of_the_same_shape(box: SimBox) -> None:
    def build(microseconds: int, count: int = 2) -> tuple[Any, Any]:
        g, after = graph(), list[Any]()
        for _ in range(count):
            after = [kernel(g, after, microseconds)]
        return g, after[0]

    g, last = build(1000)
    e = ready(g)
    done(cu.cuGraphExecUpdate(e, build(10)[0]))
    launch(e)  # 20
    assert refused(cu.cuGraphExecUpdate(e, build(10, 3)[0])).endswith("UPDATE_FAILURE")
    done(cu.cuGraphExecKernelNodeSetParams(e, last, shape(100)))
    launch(e)  # 110
    done(cu.cuGraphNodeSetEnabled(e, last, 0))
    assert done(cu.cuGraphNodeGetEnabled(e, last)) == 0
    launch(e)  # 10
    sync()

    assert box.account().busy_ns == 140_000


def test_a_child_graph_runs_in_its_parent(box: SimBox) -> None:
    inner, g = graph(), graph()
    kernel(inner, [], 100)
    node = done(cu.cuGraphAddChildGraphNode(g, [], 0, inner))
    kernel(g, [node], 10)
    done(cu.cuGraphDestroy(inner))
    assert kinds(done(cu.cuGraphChildGraphNodeGetGraph(node))) == ["KERNEL"]
    assert kinds(done(cu.cuGraphClone(g))) == ["GRAPH", "KERNEL"]
    launch(ready(g))
    sync()
    assert box.account().busy_ns == 110_000

    with_memory = graph()
    alloc(with_memory, [], MIB)
    assert refused(cu.cuGraphAddChildGraphNode(g, [], 0, with_memory)) == INVALID


def test_events_recorded_by_a_graph_happen_when_it_gets_there() -> None:
    start, end = done(cu.cuEventCreate(0)), done(cu.cuEventCreate(0))
    g = graph()
    first = done(cu.cuGraphAddEventRecordNode(g, [], 0, start))
    last = done(cu.cuGraphAddEventRecordNode(g, [kernel(g, [first], 5000)], 1, end))
    assert int(done(cu.cuGraphEventRecordNodeGetEvent(last))) == int(end)
    launch(ready(g))
    done(cu.cuEventSynchronize(end))

    assert round(done(cu.cuEventElapsedTime(start, end))) == 5
