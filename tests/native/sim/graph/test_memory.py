"""Memory of graphs on the simulated driver, through NVIDIA's own cuda-bindings."""

from gpumanager.units import MIB
from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox


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
