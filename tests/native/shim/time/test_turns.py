"""Programs that take turns, on the real clock: what they do to themselves ends in no hang and no
crash. Each runs at half of a simulated GPU, so that it waits for its turn all the time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import GpuNode, accounts, machine_of
from tests.native.shim_container import Container
from vcuda_shim import PROGRAMS

pytestmark = pytest.mark.namespaces

NAME = "turned"
MOST = 0.5
"""Of the GPU; a bucket of 50 ms comes on top."""

SAVED = 0.2
"""Seconds: that bucket, and what a busy machine sees late. Without turns it would be a second."""


@pytest.fixture
def gpu(work: Path) -> Iterator[SimulatedGpus]:
    made = SimulatedGpus.create(work, machine_of())
    yield made
    made.close()


@pytest.fixture
async def turned(work: Path, gpu: SimulatedGpus) -> AsyncIterator[Container]:
    manager = VirtualManager(work, turns=Turns(work / "turns"))
    container = await GpuNode(work, manager, gpu).container(cores=50, name=NAME)
    folder = work / "turns" / NAME
    assert (folder / "words").exists()
    yield replace(container, turns=folder)
    await manager.stop()


BEGIN = """
import os, threading
driver = cuda()
def work(seconds, length=200_000):
    begun = time.monotonic()
    spin_for(seconds, [(length, 1)], synchronise=True)
    return time.monotonic() - begun
"""


async def test_it_is_held_to_its_turns(turned: Container, gpu: SimulatedGpus) -> None:
    told = await turned.run(f"{BEGIN}\ntell(took=work(1.0))")

    (account,) = accounts(gpu)
    assert account.busy_ns / 1e9 < MOST * told["took"] + SAVED


async def test_a_child_of_a_fork_takes_turns_of_its_own(turned: Container) -> None:
    """Its parent's watcher is not in it."""
    told = await turned.run(
        f"""{BEGIN}
children = []
for _ in range(4):
    if (pid := os.fork()) == 0:
        work(0.5)
        os._exit(0)
    children.append(pid)
work(0.5)
if (pid := os.fork()) == 0:     # with a context and a watcher in the parent
    os._exit(0 if driver.cuInit(0) != -1 else 1)
children.append(pid)
work(0.3)
tell(children=[os.waitpid(pid, 0)[1] for pid in children])
"""
    )

    assert told == {"children": [0] * 5}


async def test_contexts_end_while_marks_are_in_flight(turned: Container) -> None:
    told = await turned.run(
        f"""{BEGIN}
for _ in range(30):
    context, module, function = (ctypes.c_void_p() for _ in range(3))
    assert driver.cuInit(0) == SUCCESS
    assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == SUCCESS
    assert driver.cuModuleLoadData(ctypes.byref(module), SPIN) == SUCCESS
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"spin") == SUCCESS
    for _ in range(8): spin(driver, function, 300_000)
    assert driver.cuCtxDestroy_v2(context) == SUCCESS
tell(after=work(0.3) < 5)
"""
    )

    assert told == {"after": True}


async def test_a_program_that_closes_all_descriptors_goes_on(
    turned: Container, gpu: SimulatedGpus
) -> None:
    program = turned.run(
        f"""{BEGIN}
before = work(0.3)
function = begin(driver)
os.closerange(3, 4096)
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(64)]
begun = time.monotonic()
while time.monotonic() < begun + 1:
    spin(driver, function, 200_000)
    assert driver.cuCtxSynchronize() == SUCCESS
tell(took=time.monotonic() - begun + before)
"""
    )
    told = await asyncio.wait_for(program, 15)

    (account,) = accounts(gpu)
    assert 0.1 < account.busy_ns / 1e9 < MOST * told["took"] + SAVED


async def test_threads_launch_side_by_side(turned: Container, gpu: SimulatedGpus) -> None:
    told = await turned.run(
        f"""{BEGIN}
begun = time.monotonic()
threads = [threading.Thread(target=work, args=(1.0, 50_000)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell(took=time.monotonic() - begun)
"""
    )

    (account,) = accounts(gpu)
    assert 0.1 < account.busy_ns / 1e9 < MOST * told["took"] + SAVED


@pytest.mark.parametrize("words", ["--sync-each", ""])
async def test_a_program_that_ends_with_work_in_flight(turned: Container, words: str) -> None:
    lines: list[str] = []
    command = (str(PROGRAMS / "cuda-play"), "launch", "--kernel", "200us", "--seconds", "0.5")
    process = await turned.start((*command, *words.split()), lines.append)
    status = await process.wait()
    await process.close()

    assert status == 0, lines
