"""The lock that says a process lives: held for life, lost with its descriptor, and what peers make
of it while the manager is away."""

import asyncio
from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import Books
from gpumanager.limits.pages.slot_table import locked
from gpumanager.units import MIB
from tests.native.shim_container import ALLOCATION, LIMIT, Container, reached
from vcuda_shim._shim import lib

pytestmark = pytest.mark.namespaces


def alive_lock_held(directory: Path, slot: int) -> bool:
    with Books.existing(directory) as books:
        return locked(books.descriptor, slot)


async def test_a_process_holds_its_alive_lock_for_its_life(container: Container) -> None:
    assert container.allocation is not None
    program = container.begin(
        """
driver = cuda()
driver.cuInit(0)
pause()
"""
    )
    await program.pauses()
    while_alive = alive_lock_held(container.allocation, 0)
    await program.ends()

    assert while_alive
    assert not alive_lock_held(container.allocation, 0)


async def test_a_program_that_closed_all_its_descriptors_gets_the_books_again(
    container: Container, work: Path, manager: VirtualManager
) -> None:
    assert container.allocation is not None
    running = asyncio.create_task(
        container.run(
            f"""
import os
def books():
    return sum(os.path.realpath(f"/proc/self/fd/{{fd}}").startswith("/memfd:vcuda-books")
               for fd in os.listdir("/proc/self/fd"))
driver = cuda()
driver.cuInit(0)
allocate(driver, {MIB})
os.closerange(3, 1024)
lost = books()
refused = allocate(driver, {LIMIT})[0]
fits = allocate(driver, {MIB})[0]
found = books()
reach({str(work / "up")!r})
wait_for({str(work / "seen")!r})
tell(lost=lost, refused=refused, fits=fits, found=found, left=memory(driver)[0])
"""
        )
    )
    await reached(work / "up", running)
    held = alive_lock_held(container.allocation, 0)
    (process,) = manager.usage(ALLOCATION).processes
    (work / "seen").touch()

    assert await running == {
        "lost": 0,
        "refused": 2,
        "fits": 0,
        "found": 1,
        "left": LIMIT - 2 * MIB,
    }
    assert held
    assert process.degraded & lib.VCUDA_DEGRADED_LOCK  # it had none for a while


async def test_a_lost_descriptor_costs_little_while_the_manager_is_away(
    container: Container, manager: VirtualManager
) -> None:
    program = container.begin(
        f"""
import os, time
driver = cuda()
driver.cuInit(0)
pause()
os.closerange(3, 1024)
refused = allocate(driver, {LIMIT} + 1)[0]
before = waits()
results = {{allocate(driver, 1024)[0] for _ in range(1000)}}
tell(refused=refused, results=sorted(results), waits=waits() - before)
"""
    )
    await program.pauses()
    await manager.stop()
    told = await program.ends()

    assert (told["refused"], told["results"]) == (2, [0])
    assert told["waits"] < 10  # of a thousand


HOLDER = f"""
from tests.native.programs.shim_client import *
driver = cuda()
driver.cuInit(0)
assert allocate(driver, {LIMIT} - 1)[0] == SUCCESS
print("full", flush=True)
time.sleep(600)
"""


async def test_while_the_manager_is_away_peers_take_back_what_a_killed_process_held(
    container: Container, manager: VirtualManager
) -> None:
    program = container.begin(
        f"""
import subprocess, sys
driver = cuda()
driver.cuInit(0)
child = subprocess.Popen([sys.executable, "-c", {HOLDER!r}], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline().strip() == "full"
pause()
before = allocate(driver, 2)[0]
child.kill()
soon(lambda: allocate(driver, {LIMIT})[0] == SUCCESS)
tell(before=before, left=memory(driver)[0])
"""
    )
    await program.pauses()
    await manager.stop()

    assert await program.ends() == {"before": 2, "left": 0}
