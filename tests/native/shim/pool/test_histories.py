"""Whatever programs do with pools, in threads and in processes, limits hold."""

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.native.gpu_node import LIMIT, GpuNode, accounts
from tests.native.shim.pool.pool_scripts import told
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container()


HISTORY = """
import threading
_, filler = pools.plain({limit} - {leave})
histories = [History(pools, {seed} * 100 + number) for number in range({threads})]
failures = []
def run(history):
    try:
        history.run({steps})
    except BaseException as error:
        failures.append(repr(error))
threads = [threading.Thread(target=run, args=[history]) for history in histories]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert failures == [], failures
assert pools.driver.cuCtxSynchronize() == 0
quiet = pools.both()
for history in histories:
    for address in history.held:
        assert pools.free_now(address) == 0
    assert pools.destroy(history.made[1]) == 0
pools.put(default, THRESHOLD, 0)
assert pools.driver.cuCtxSynchronize() == 0
assert pools.free_now(filler) == 0
tell(quiet=quiet, results=sorted(set().union(*(history.results for history in histories))),
     end=pools.both(), refused=sum(history.refused for history in histories),
     had_room=sum(history.had_room for history in histories))
"""


def history(seed: int, threads: int, steps: int, leave: int) -> str:
    return HISTORY.format(seed=seed, threads=threads, steps=steps, limit=LIMIT, leave=leave)


@pytest.mark.parametrize("seed", range(6))
async def test_through_any_history_the_books_are_the_drivers_and_the_limit_holds(
    container: Container, gpu: SimulatedGpus, seed: int
) -> None:
    answer = await told(container, history(seed, 1, 600, 160 * MIB + 12345))

    assert answer["quiet"][0] == answer["quiet"][1]
    assert set(answer["results"]) <= {0, 2}
    assert answer["end"] == [0, 0]
    assert accounts(gpu)[0].bytes_peak <= LIMIT
    assert answer["refused"] > 0
    assert answer["had_room"] == 0


@pytest.mark.parametrize("seed", range(4))
async def test_with_many_threads_too(container: Container, gpu: SimulatedGpus, seed: int) -> None:
    answer = await told(container, history(seed, 8, 150, 300 * MIB + 1))

    assert answer["quiet"][0] == answer["quiet"][1]
    assert set(answer["results"]) <= {0, 2}
    assert answer["end"] == [0, 0]
    assert accounts(gpu)[0].bytes_peak <= LIMIT


RACER = """
import sys
from tests.native.programs.pool_client import *
History(LimitedPools({limit}), int(sys.argv[1])).run(100000 if sys.argv[1] == "0" else 250)
"""


async def test_processes_that_race_with_their_pools_never_pass_the_limit(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        f"""
import subprocess, sys, time
_, filler = pools.plain({LIMIT} - {200 * MIB})
def start(seed):
    return subprocess.Popen([sys.executable, "-c", {RACER.format(limit=LIMIT)!r}, str(seed)])
racers = [start(seed) for seed in range(4)]
results = [racer.wait() for racer in racers[1:]]
racers[0].kill()
racers[0].wait()
soon(lambda: pools.books() == {LIMIT - 200 * MIB})
tell(results=results, both=pools.both())
""",
    )

    assert answer["results"] == [0, 0, 0]
    assert answer["both"] == [LIMIT - 200 * MIB] * 2
    assert accounts(gpu)[0].bytes_peak <= LIMIT
