"""Whatever programs do with graphs, in threads, in processes and on several GPUs, limits hold."""

from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.native.gpu_node import GpuNode, accounts, accounts_by_gpu, machine_of
from tests.native.shim.graph.graph_limits import LIMIT, told
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container(LIMIT)


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
    container: Container, gpu: SimulatedGpus, seed: int
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
    (account,) = accounts(gpu)
    assert (account.bytes_peak <= LIMIT, account.refused) == (True, 0)


async def test_threads_and_processes_with_graphs_together_stay_inside_the_limit(
    container: Container, gpu: SimulatedGpus
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
    assert max(account.bytes_peak for account in accounts(gpu)) <= LIMIT


async def test_a_graph_over_several_gpus_is_held_by_the_limit_of_each(
    work: Path, manager: VirtualManager
) -> None:
    machine = SimulatedGpus.create(work, machine_of(3, capability=9))
    node = GpuNode(work, manager, machine)
    container = await node.container({0: 64 * MIB, 1: 128 * MIB}, shown=[0, 1, 2])

    answer = await container.run(
        """
from tests.native.programs.shim_client import tell
from tests.native.programs.graph_client import *

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
    ((first, second, third),) = accounts_by_gpu(machine)
    assert (first.bytes_peak, second.bytes_peak, third.bytes_peak) == (64 * MIB, 128 * MIB, 0)
    machine.close()
