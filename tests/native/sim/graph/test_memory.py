"""Memory of graphs on the simulated driver, through NVIDIA's own cuda-bindings."""

import ctypes
import threading

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *

MACHINE = {"cuda_version": 12050}


def reserved() -> float:
    return memory("RESERVED_MEM_CURRENT") / MIB


def trim() -> None:
    done(cu.cuDeviceGraphMemTrim(device))


def test_memory_of_a_graph_is_taken_at_its_first_launch_and_kept_until_trimmed() -> None:
    def state() -> tuple[float, float]:
        return reserved(), ((16 << 30) - done(cu.cuMemGetInfo())[0]) / MIB

    g = graph()
    node, address = alloc(g, [], 3 * MIB)
    free(g, [kernel(g, [node], 1)], address)
    e = ready(g)
    assert state() == (0, 0)
    for _ in range(10):
        launch(e)
    assert state() == (4, 4)
    done(cu.cuGraphExecDestroy(e))
    sync()
    assert state() == (4, 4)
    trim()
    assert (*state(), memory("RESERVED_MEM_HIGH")) == (0, 0, 4 * MIB)


def test_a_trim_takes_nothing_from_a_graph_that_still_runs() -> None:
    g = graph()
    node, address = alloc(g, [], MIB)
    free(g, [kernel(g, [node], 200_000)], address)
    launch(ready(g))
    trim()
    assert reserved() == 2
    sync()
    trim()
    assert reserved() == 0


def test_what_a_graph_leaves_allocated_must_be_freed_before_its_next_launch() -> None:
    g = graph()
    _, address = alloc(g, [], 2 * MIB)
    e = ready(g)
    launch(e)
    assert refused(cu.cuGraphLaunch(e, stream)) == INVALID
    done(cu.cuMemFreeAsync(address, stream))
    launch(e)
    done(cu.cuMemFree(address))
    assert refused(cu.cuMemFree(address)) == INVALID
    done(cu.cuGraphExecDestroy(e))
    e = ready(g, cu.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
    launch(e)
    launch(e)
    assert reserved() == 2
    trim()
    assert (reserved(), memory("USED_MEM_CURRENT")) == (2, 2 * MIB)


def test_graphs_share_memory_that_none_of_them_keeps() -> None:
    def build(size: int, *, keep: bool = False) -> object:
        g = graph()
        node, address = alloc(g, [], size)
        if not keep:
            free(g, [node], address)
        return ready(g)

    small, large, keeper = build(8 * MIB), build(32 * MIB), build(4 * MIB, keep=True)
    launch(small)
    launch(large)
    assert reserved() == 32
    launch(keeper)
    assert reserved() == 32
    launch(large)
    assert reserved() == 36


def test_graphs_that_two_threads_launch_share_nothing_that_one_is_about_to_keep() -> None:
    """The first is between what it maps and what it allocates when the second comes."""
    begun, other = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        begun.set()
        other.wait(0.2)

    host = cu.CUDA_HOST_NODE_PARAMS()
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wait)
    host.fn = ctypes.cast(called, ctypes.c_void_p).value
    slow, quick = graph(), graph(4 * MIB, keep=True)
    alloc(slow, [done(cu.cuGraphAddHostNode(slow, [], 0, host))], 4 * MIB)
    slow, quick = ready(slow), ready(quick)
    first = threading.Thread(target=launch, args=[slow])
    first.start()
    begun.wait()
    launch(quick)
    other.set()
    first.join()

    assert (reserved(), memory("USED_MEM_CURRENT")) == (8, 8 * MIB)


def test_an_address_is_used_again_where_its_free_came_before() -> None:
    g = graph()
    node, address = alloc(g, [], MIB)
    freed = free(g, [node], address)
    _, beside = alloc(g, [node], MIB)
    _, after = alloc(g, [freed], MIB)
    assert beside != address == after

    plain = done(cu.cuMemAlloc(4096))
    assert refused(cu.cuGraphAddMemFreeNode(g, [], 0, plain)) == INVALID
    assert refused(cu.cuGraphClone(g)) == INVALID
    _kept = ready(g)
    assert refused(cu.cuGraphInstantiate(g, 0)) == INVALID


def test_graph_memory_beyond_the_gpu_is_refused_at_launch() -> None:
    g = graph()
    alloc(g, [], 17 << 30)
    e = ready(g)

    assert refused(cu.cuGraphLaunch(e, stream)) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert reserved() == 0


def test_a_pointer_of_a_graph_tells_its_gpu_and_has_no_handle_for_others() -> None:
    _, address = alloc(graph(), [], MIB, 1)

    ordinal = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert done(cu.cuPointerGetAttribute(ordinal, address)) == 1
    assert refused(cu.cuIpcGetMemHandle(address)) == INVALID
