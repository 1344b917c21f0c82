"""Memory of graphs behind the shim, over the simulated driver, whose own account is the truth."""

from pathlib import Path
from typing import Any

import pytest
from gpu_node import Node, SimulatedMachine
from one_gpu import SimulatedGpu
from shim_container import GPU, Container

from gpumanager.sim.libraries import lay_out
from gpumanager.units import MIB, Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim import SIMULATED_DRIVER

pytestmark = pytest.mark.namespaces

LIMIT = 256 * MIB
CLIENT = f"""
import random, threading
from shim_client import tell
from graph_client import *

LIMIT = {LIMIT}
real = ctypes.CDLL("libvcuda-real.so.1")
shim = ctypes.CDLL("libcuda.so.1")
PHYSICAL = done(cu.cuDeviceGetAttribute(cu.CUdevice_attribute(16), device)) and {16 << 30}

def truth():
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert real.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    return PHYSICAL - left.value

def books():
    left, total = done(cu.cuMemGetInfo())
    assert total == LIMIT
    return LIMIT - left

def right():
    return books() == truth()
"""


@pytest.fixture
async def container(work: Path, gpu: SimulatedGpu, manager: VirtualSockets) -> Container:
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    limit = Limit(GPU, Bytes(LIMIT), 100, 100)
    directory = await manager.open(AllocationID("one"), [limit])
    return Container(lay_out(work / "lib", cuda, nvml), directory, work, gpu.devices)


async def told(container: Container, script: str) -> dict[str, Any]:
    return await container.run(CLIENT + script)


async def test_a_graph_that_frees_what_it_allocates_keeps_the_books_right_over_ten_launches(
    container: Container, gpu: SimulatedGpu
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
    assert gpu.tenants()[0].peak_bytes == 10 * MIB


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
    container: Container, gpu: SimulatedGpu
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
    (account,) = gpu.tenants()
    assert (account.peak_bytes, account.refused) == (160 * MIB, 0)


async def test_a_graph_launched_again_is_not_refused_at_a_full_limit(
    container: Container, gpu: SimulatedGpu
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
    assert gpu.tenants()[0].peak_bytes == LIMIT


async def test_a_graph_whose_memory_was_trimmed_must_find_room_again(
    container: Container, gpu: SimulatedGpu
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
    assert gpu.tenants()[0].peak_bytes <= LIMIT


async def test_a_graph_launched_again_needs_room_for_what_others_have_kept_since(
    container: Container, gpu: SimulatedGpu
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
    assert gpu.tenants()[0].peak_bytes <= LIMIT


async def test_what_graphs_do_not_use_makes_room_for_a_graph_that_needs_it(
    container: Container, gpu: SimulatedGpu
) -> None:
    answer = await told(
        container,
        """
first, second = ready(graph(160 * MIB)), ready(graph(64 * MIB, 64 * MIB))
launch(first)
done(cu.cuStreamSynchronize(stream))
launch(second)
tell(held=books(), right=right())
""",
    )

    assert answer == {"held": 128 * MIB, "right": True}
    assert gpu.tenants()[0].peak_bytes == 160 * MIB


async def test_what_graphs_do_not_use_makes_room_for_other_allocations(
    container: Container, gpu: SimulatedGpu
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
    assert gpu.tenants()[0].peak_bytes <= LIMIT


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


VARIANTS = """
def pointer(value=0):
    return ctypes.c_void_p(int(value))

def by_name(symbol, version, flags):
    entry, status = ctypes.c_void_p(), ctypes.c_int()
    assert shim.cuGetProcAddress_v2(symbol.encode(), ctypes.byref(entry), version,
                                    ctypes.c_uint64(flags), ctypes.byref(status)) == 0
    return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(entry.value), entry.value

def call(function, *arguments):
    return function(*arguments, *[None] * (5 - len(arguments)))

class Params(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("stream", ctypes.c_void_p),
                ("node", ctypes.c_void_p), ("result", ctypes.c_int)]

def instantiated(function, made, flags=None):
    executable, params = ctypes.c_void_p(), Params(flags or 0, int(stream))
    last = [] if flags is None else [ctypes.addressof(params)]
    code = call(function, ctypes.addressof(executable), int(made), *last)
    return code, executable.value

def tidy(executable):
    assert shim.cuGraphExecDestroy(pointer(executable)) == 0
    done(cu.cuStreamSynchronize(stream))
    assert shim.cuDeviceGraphMemTrim(0) == 0
    assert books() == truth() == 0
"""


@pytest.mark.parametrize(
    ("symbol", "base", "version", "per_thread"),
    [
        ("cuGraphInstantiate", "cuGraphInstantiate", 10000, 0),
        ("cuGraphInstantiate_v2", "cuGraphInstantiate", 11000, 0),
        ("cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 12000, 0),
        ("cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams", 12000, 0),
        ("cuGraphInstantiateWithParams_ptsz", "cuGraphInstantiateWithParams", 12000, 2),
    ],
)
async def test_every_way_to_instantiate_counts_by_symbol_and_by_name(
    container: Container, symbol: str, base: str, version: int, per_thread: int
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found, entry = by_name({base!r}, {version}, {per_thread})
ours = ctypes.cast(shim.{symbol}, ctypes.c_void_p).value == entry
held = []
for function in found, ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(entry):
    with_params = 0 if "WithParams" in {symbol!r} else None
    code, executable = instantiated(function, graph(6 * MIB), with_params)
    assert code == 0
    assert shim.cuGraphLaunch(pointer(executable), stream_ := pointer(stream)) == 0
    held.append(books() // MIB)
    assert right()
    tidy(executable)
code, executable = instantiated(found, graph(LIMIT + 1), with_params)
tell(ours=ours, held=held, code=code,
     refused=shim.cuGraphLaunch(pointer(executable), stream_), right=right())
""",
    )

    assert answer == {"ours": True, "held": [6, 6], "code": 0, "refused": 2, "right": True}


@pytest.mark.parametrize(
    ("symbol", "base", "per_thread"),
    [
        ("cuGraphLaunch", "cuGraphLaunch", 0),
        ("cuGraphLaunch_ptsz", "cuGraphLaunch", 2),
        ("cuGraphUpload", "cuGraphUpload", 0),
        ("cuGraphUpload_ptsz", "cuGraphUpload", 2),
    ],
)
@pytest.mark.parametrize("handle", ["stream", "0"])
async def test_every_way_to_launch_and_upload_counts_by_symbol_and_by_name(
    container: Container, symbol: str, base: str, per_thread: int, handle: str
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found, entry = by_name({base!r}, 12000, {per_thread})
ours = ctypes.cast(shim.{symbol}, ctypes.c_void_p).value == entry
e, large = ready(graph(6 * MIB)), ready(graph(LIMIT + 1))
code = call(found, int(e), int({handle}))
held = books() // MIB
again = shim.{symbol}(pointer(e), pointer({handle}))
beyond = call(found, int(large), int({handle}))
tell(ours=ours, codes=[code, again, beyond], held=held, right=right())
tidy(int(e))
""",
    )

    assert answer == {"ours": True, "codes": [0, 0, 2], "held": 6, "right": True}


@pytest.mark.parametrize(
    "symbol", ["cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"]
)
async def test_a_graph_uploaded_as_it_is_made_is_charged_then(
    container: Container, symbol: str
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(
    ctypes.cast(shim.{symbol}, ctypes.c_void_p).value)
code, executable = instantiated(found, graph(6 * MIB), 2)
held = books() // MIB
assert right()
beyond, _ = instantiated(found, graph(LIMIT + 1), 2)
tell(code=code, held=held, beyond=beyond, right=right())
tidy(executable)
""",
    )

    assert answer == {"code": 0, "held": 6, "beyond": 2, "right": True}


@pytest.mark.parametrize(
    ("symbol", "version"), [("cuGraphExecUpdate", 11000), ("cuGraphExecUpdate_v2", 12000)]
)
async def test_both_ways_to_update_reach_the_driver(
    container: Container, symbol: str, version: int
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found, entry = by_name("cuGraphExecUpdate", {version}, 0)
ours = ctypes.cast(shim.{symbol}, ctypes.c_void_p).value == entry
e, other = ready(graph()), graph()
result = (ctypes.c_uint64 * 4)()
code = call(found, int(e), int(other), ctypes.addressof(result), ctypes.addressof(result) + 24)
kernel(other, [], 1)
changed = call(found, int(e), int(other), ctypes.addressof(result), ctypes.addressof(result) + 24)
tell(ours=ours, codes=[code, changed])
""",
    )

    assert answer == {"ours": True, "codes": [0, 910]}


HISTORY = """
class History:
    \"\"\"Random moves; what is asked for is sometimes more than there is room for.\"\"\"

    def __init__(self, seed, where):
        self.random, self.where, self.refused = random.Random(seed), where, 0
        self.graphs, self.plain = [], []

    def fits(self, code):
        assert int(code) in (0, 2), code
        self.refused += int(code) == 2
        return int(code) == 0

    def make(self):
        sizes = [self.random.randint(1, 60 * MIB) for _ in range(self.random.randint(1, 3))]
        made, keep = done(cu.cuGraphCreate(0)), self.random.random() < 0.4
        pairs = [alloc(made, [], size) for size in sizes]
        last = kernel(made, [node for node, _ in pairs], 1)
        kept = [address for _, address in pairs] if keep else []
        for _, address in pairs[len(kept):]:
            free(made, [last], address)
        self.graphs.append((ready(made), kept, []))

    def launch(self):
        executable, kept, live = self.random.choice(self.graphs)
        if not live and self.fits(cu.cuGraphLaunch(executable, self.where)[0]):
            live += kept

    def free(self, chosen=None):
        _, _, live = chosen or self.random.choice(self.graphs)
        for address in live:
            done(cu.cuMemFreeAsync(address, self.where))
        live.clear()

    def drop(self):
        chosen = self.graphs.pop(self.random.randrange(len(self.graphs)))
        done(cu.cuGraphExecDestroy(chosen[0]))
        self.free(chosen)

    def take(self):
        code, address = cu.cuMemAlloc(self.random.randint(1, 80 * MIB))
        if self.fits(code):
            self.plain.append(address)

    def give(self):
        if self.plain:
            done(cu.cuMemFree(self.plain.pop(self.random.randrange(len(self.plain)))))

    def trim(self):
        done(cu.cuDeviceGraphMemTrim(device))

    def sync(self):
        done(cu.cuStreamSynchronize(self.where))

    def step(self):
        if not self.graphs:
            return self.make()
        moves = [self.launch] * 5 + [self.free, self.take, self.give, self.give, self.trim,
                                     self.sync]
        moves += [self.drop, self.make if len(self.graphs) < 6 else self.drop]
        return self.random.choice(moves)()

    def end(self):
        while self.graphs:
            self.drop()
        while self.plain:
            self.give()
        self.sync()
        self.trim()
"""


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_done_with_graphs_the_books_are_the_drivers(
    container: Container, gpu: SimulatedGpu, seed: int
) -> None:
    answer = await told(
        container,
        HISTORY
        + f"""
history = History({seed}, stream)
for _ in range(300):
    history.step()
    assert right()
history.end()
tell(refused=history.refused > 0, last=books(), right=right())
""",
    )

    assert answer == {"refused": True, "last": 0, "right": True}
    (account,) = gpu.tenants()
    assert (account.peak_bytes <= LIMIT, account.refused) == (True, 0)


async def test_threads_and_processes_with_graphs_together_stay_inside_the_limit(
    container: Container, gpu: SimulatedGpu
) -> None:
    answer = await told(
        container,
        HISTORY
        + """
import os, subprocess, sys
CONTEXT = done(cu.cuCtxGetCurrent())

def work(seed, failed):
    done(cu.cuCtxSetCurrent(CONTEXT))
    history = History(seed, done(cu.cuStreamCreate(1)))
    try:
        for _ in range(100):
            history.step()
        history.end()
    except BaseException as error:
        failed.append(repr(error))

def storm(first):
    failed = []
    threads = [threading.Thread(target=work, args=(first + n, failed)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done(cu.cuCtxSynchronize())
    done(cu.cuDeviceGraphMemTrim(device))
    return failed

if "CHILD" in os.environ:
    failed = storm(100)
    assert not failed, failed
else:
    child = subprocess.Popen([sys.executable, "-c", sys.orig_argv[2]],
                             env=os.environ | {"CHILD": "1"})
    failed, status = storm(200), child.wait()
    tell(failed=failed, status=status, books=books(), truth=truth())
""",
    )

    assert answer == {"failed": [], "status": 0, "books": 0, "truth": 0}
    assert max(account.peak_bytes for account in gpu.tenants()) <= LIMIT


async def test_a_graph_over_several_gpus_is_held_by_the_limit_of_each(
    work: Path, manager: VirtualSockets
) -> None:
    machine = SimulatedMachine(work / "dev", 3)
    node = Node(work, machine, manager)
    container = await node.container({0: 64 * MIB, 1: 128 * MIB}, shown=[0, 1, 2])

    answer = await container.run(
        """
from shim_client import tell
from graph_client import *

def over(*sizes):
    made = graph()
    for gpu, size in enumerate(sizes):
        if size:
            node, address = alloc(made, [], size * MIB, gpu)
            free(made, [node], address)
    return int(cu.cuGraphLaunch(ready(made), stream)[0])

codes = [over(64, 128), over(2, 130), over(66, 2), over(0, 0, 2), over(2, 2)]
tell(codes=codes)
"""
    )

    assert answer == {"codes": [0, 2, 2, 2, 0]}
    ((first, second, third),) = machine.tenants()
    assert (first.peak_bytes, second.peak_bytes, third.peak_bytes) == (64 * MIB, 128 * MIB, 0)
    machine.close()
