"""Memory of graphs behind the shim, over the simulated driver, whose own account is the truth."""

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.native.gpu_node import GpuNode, accounts
from tests.native.shim.graph.graph_limits import LIMIT, told
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container(LIMIT)


async def test_a_graph_that_frees_what_it_allocates_keeps_the_books_right_over_ten_launches(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
e = ready(graph(3 * MIB, 5 * MIB))
before = books()
held = []
for _ in range(10):
    launch(e)
    held.append(books())
    assert right()
tell(before=before, held=sorted(set(held)))
""",
    )

    assert answer == {"before": 0, "held": [10 * MIB]}
    assert accounts(gpu)[0].bytes_peak == 10 * MIB


async def test_graphs_that_share_memory_are_charged_for_it_once(container: Container) -> None:
    answer = await told(
        container,
        """
small, large, keeper = ready(graph(8 * MIB)), ready(graph(40 * MIB)), None
held = []
for executable in small, large, small, ready(graph(4 * MIB, keep=True)), large:
    launch(executable)
    held.append(books() // MIB)
    assert right()
tell(held=held)
""",
    )

    assert answer == {"held": [8, 40, 40, 40, 44]}


async def test_a_launch_beyond_the_limit_is_refused_and_succeeds_when_there_is_room(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
e = ready(graph(160 * MIB))
plain = done(cu.cuMemAlloc(100 * MIB))
first, again = refused(cu.cuGraphLaunch(e, stream)), refused(cu.cuGraphUpload(e, stream))
held = books()
done(cu.cuMemFree(plain))
launch(e)
tell(first=first, again=again, held=held, launched=books(), right=right())
""",
    )

    assert answer == {
        "first": "CUDA_ERROR_OUT_OF_MEMORY",
        "again": "CUDA_ERROR_OUT_OF_MEMORY",
        "held": 100 * MIB,
        "launched": 160 * MIB,
        "right": True,
    }
    (account,) = accounts(gpu)
    assert (account.bytes_peak, account.refused) == (160 * MIB, 0)


async def test_a_graph_launched_again_is_not_refused_at_a_full_limit(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
e = ready(graph(LIMIT // 2))
launch(e)
done(cu.cuMemAlloc(LIMIT // 2))
for _ in range(5):
    launch(e)
tell(left=done(cu.cuMemGetInfo())[0], right=right())
""",
    )

    assert answer == {"left": 0, "right": True}
    assert accounts(gpu)[0].bytes_peak == LIMIT


async def test_a_graph_whose_memory_was_trimmed_must_find_room_again(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
e = ready(graph(160 * MIB))
launch(e)
done(cu.cuStreamSynchronize(stream))
done(cu.cuDeviceGraphMemTrim(device))
plain = done(cu.cuMemAlloc(100 * MIB))
code = refused(cu.cuGraphLaunch(e, stream))
done(cu.cuMemFree(plain))
launch(e)
tell(code=code, right=right())
""",
    )

    assert answer == {"code": "CUDA_ERROR_OUT_OF_MEMORY", "right": True}
    assert accounts(gpu)[0].bytes_peak <= LIMIT


async def test_a_graph_launched_again_needs_room_for_what_others_have_kept_since(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
e, (_, address) = ready(graph(100 * MIB)), alloc(keeper := graph(), [], 100 * MIB)
launch(e)
launch(ready(keeper))
done(cu.cuMemAlloc(100 * MIB))
held, code = books() // MIB, refused(cu.cuGraphLaunch(e, stream))
done(cu.cuMemFreeAsync(address, stream))
done(cu.cuStreamSynchronize(stream))
launch(e)
tell(held=held, code=code, right=right())
""",
    )

    assert answer == {"held": 200, "code": "CUDA_ERROR_OUT_OF_MEMORY", "right": True}
    assert accounts(gpu)[0].bytes_peak <= LIMIT


async def test_graphs_of_one_stream_need_what_the_largest_does_and_not_the_sum(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
first, second = ready(graph(160 * MIB)), ready(graph(64 * MIB, 64 * MIB))
for _ in range(20):
    launch(first)
    launch(second)
tell(held=books(), right=right())
""",
    )

    assert answer == {"held": 160 * MIB, "right": True}
    assert accounts(gpu)[0].bytes_peak == 160 * MIB


async def test_graphs_that_run_in_other_streams_are_waited_for_where_there_is_no_room_for_all(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
streams = [done(cu.cuStreamCreate(1)) for _ in range(3)]
made = []
for size in 160, 96, 128:
    made.append(done(cu.cuGraphCreate(0)))
    node, address = alloc(made[-1], [], size * MIB)
    free(made[-1], [kernel(made[-1], [node], 1000)], address)
made = [ready(each) for each in made]
for _ in range(5):
    for executable, own in zip(made, streams):
        done(cu.cuGraphLaunch(executable, own))
done(cu.cuCtxSynchronize())
tell(right=right())
""",
    )

    assert answer == {"right": True}
    assert 160 * MIB <= accounts(gpu)[0].bytes_peak <= LIMIT


async def test_what_graphs_do_not_use_makes_room_for_other_allocations(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        """
launch(ready(graph(160 * MIB)))
done(cu.cuStreamSynchronize(stream))
plain = done(cu.cuMemAlloc(200 * MIB))
held = books() // MIB
done(cu.cuMemFree(plain))
launch(ready(graph(160 * MIB)))
done(cu.cuStreamSynchronize(stream))
done(cu.cuMemAllocAsync(200 * MIB, stream))
tell(held=held, right=right())
""",
    )

    assert answer == {"held": 200, "right": True}
    assert accounts(gpu)[0].bytes_peak <= LIMIT


async def test_a_trim_gives_back_all_but_what_is_still_allocated(container: Container) -> None:
    answer = await told(
        container,
        """
_, address = alloc(kept := graph(), [], 6 * MIB)
for executable in ready(kept), ready(graph(32 * MIB)):
    launch(executable)
before = books() // MIB
done(cu.cuStreamSynchronize(stream))
done(cu.cuDeviceGraphMemTrim(device))
trimmed = books() // MIB
assert right()
done(cu.cuMemFreeAsync(address, stream))
freed = books() // MIB
done(cu.cuDeviceGraphMemTrim(device))
tell(before=before, trimmed=trimmed, freed=freed, last=books(), right=right())
""",
    )

    assert answer == {"before": 38, "trimmed": 6, "freed": 6, "last": 0, "right": True}


async def test_memory_stays_charged_when_its_graph_is_destroyed_until_it_is_trimmed(
    container: Container,
) -> None:
    answer = await told(
        container,
        """
e = ready(graph(8 * MIB))
launch(e)
done(cu.cuGraphExecDestroy(e))
destroyed = books()
assert right()
done(cu.cuStreamSynchronize(stream))
done(cu.cuDeviceGraphMemTrim(device))
tell(destroyed=destroyed, trimmed=books(), right=right())
""",
    )

    assert answer == {"destroyed": 8 * MIB, "trimmed": 0, "right": True}


async def test_captured_allocations_are_charged_when_their_graph_is_launched(
    container: Container,
) -> None:
    answer = await told(
        container,
        """
capture()
address = done(cu.cuMemAllocAsync(32 * MIB, stream))
run(1)
during = books()
done(cu.cuMemFreeAsync(address, stream))
g = captured()
e = ready(g)
captured_ = books()
launch(e)
tell(kinds=kinds(g), during=during, captured=captured_, launched=books(), right=right())
""",
    )

    assert answer == {
        "kinds": ["MEM_ALLOC", "KERNEL", "MEM_FREE"],
        "during": 0,
        "captured": 0,
        "launched": 32 * MIB,
        "right": True,
    }


async def test_memory_of_graphs_inside_a_graph_counts(container: Container) -> None:
    answer = await told(
        container,
        """
def inside(inner):
    outer = graph(2 * MIB)
    params = cu.CUgraphNodeParams()
    params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    params.graph.graph = inner
    params.graph.ownership = (
        cu.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    done(cu.cuGraphAddNode(outer, [], None, 0, params))
    return outer
fits = ready(inside(inside(graph(100 * MIB))))
launch(fits)
held = books()
too_much = ready(inside(inside(graph(253 * MIB))))
tell(held=held, refused=refused(cu.cuGraphLaunch(too_much, stream)), right=right())
""",
    )

    assert answer == {
        "held": 104 * MIB,
        "refused": "CUDA_ERROR_OUT_OF_MEMORY",
        "right": True,
    }


async def test_addresses_that_are_used_twice_in_a_graph_are_charged_once(
    container: Container,
) -> None:
    answer = await told(
        container,
        """
g, after = graph(), []
for _ in range(10):
    node, address = alloc(g, after, 40 * MIB)
    after = [free(g, [node], address)]
launch(ready(g))
tell(held=books(), right=right())
""",
    )

    assert answer == {"held": 40 * MIB, "right": True}


async def test_an_updated_graph_keeps_what_it_needed(container: Container) -> None:
    answer = await told(
        container,
        """
def plain(microseconds):
    made = graph()
    kernel(made, [], microseconds)
    return made
e = ready(plain(1))
done(cu.cuGraphExecUpdate(e, plain(2)))
launch(e)
held = books()
needing = ready(graph(4 * MIB))
code = cu.cuGraphExecUpdate(needing, plain(2))[0].name
launch(needing)
tell(held=held, code=code, launched=books(), right=right())
""",
    )

    assert answer == {
        "held": 0,
        "code": "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        "launched": 4 * MIB,
        "right": True,
    }


async def test_memory_freed_at_the_next_launch_is_not_charged_twice(container: Container) -> None:
    answer = await told(
        container,
        """
e = ready(graph(30 * MIB, keep=True), 1)  # AUTO_FREE_ON_LAUNCH
for _ in range(4):
    launch(e)
    assert right()
tell(held=books())
""",
    )

    assert answer == {"held": 30 * MIB}


@pytest.mark.parametrize("depth", [17, 100, 1000])
async def test_graphs_nest_as_deep_as_the_driver_takes_them(
    container: Container, depth: int
) -> None:
    answer = await told(
        container,
        f"""
def inside(inner):
    outer = graph()
    done(cu.cuGraphAddChildGraphNode(outer, [], 0, inner))
    done(cu.cuGraphDestroy(inner))
    return outer
def nested(innermost):
    for _ in range({depth}):
        innermost = inside(innermost)
    return innermost
def moved(innermost):
    for _ in range({depth}):
        outer, params = graph(), cu.CUgraphNodeParams()
        params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
        params.graph.graph = innermost
        params.graph.ownership = (
            cu.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        done(cu.cuGraphAddNode(outer, [], None, 0, params))
        innermost = outer
    return innermost
plain = graph()
kernel(plain, [], 1)
launch(ready(nested(plain)))
held = [books()]
launch(ready(moved(graph(100 * MIB))))
held.append(books() // MIB)
tell(held=held, refused=refused(cu.cuGraphLaunch(ready(moved(graph(257 * MIB))), stream)),
     right=right())
""",
    )

    assert answer == {"held": [0, 100], "refused": "CUDA_ERROR_OUT_OF_MEMORY", "right": True}
