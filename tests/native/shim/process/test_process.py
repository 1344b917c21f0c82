"""Processes behind the shim: attached, forked, unmanaged, and with a manager that is away."""

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.units import MIB
from tests.native.shim_container import ALLOCATION, LIMIT, Container, allocation, reached

pytestmark = pytest.mark.namespaces


@pytest.fixture
def unanswered(work: Path, driver: Path) -> Iterator[Container]:
    """Its manager listens, and says nothing."""
    directory = work / "silent"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "vcuda.sock"))
        listener.listen()
        yield Container(driver, directory, work)


async def test_two_containers_of_one_allocation_share_its_limit(container: Container) -> None:
    told = await container.run(
        f"""
import subprocess, sys
driver = cuda()
driver.cuInit(0)
allocate(driver, {LIMIT - 2 * MIB})
child = subprocess.run([sys.executable, "-c", '''
from tests.native.programs.shim_client import *
driver = cuda()
driver.cuInit(0)
tell(too_much=allocate(driver, {2 * MIB + 1})[0], fits=allocate(driver, {2 * MIB})[0])
'''], capture_output=True, text=True)
print(child.stdout, end="")
"""
    )

    assert told == {"too_much": 2, "fits": 0}


async def test_a_forked_child_is_a_process_of_its_own(container: Container) -> None:
    told = await container.run(
        f"""
import os
driver = cuda()
driver.cuInit(0)
allocate(driver, {LIMIT - 2 * MIB})
child = os.fork()
if child == 0:
    driver.cuInit(0)
    tell(too_much=allocate(driver, {2 * MIB + 1})[0], fits=allocate(driver, {2 * MIB})[0])
    os._exit(0)
os.waitpid(child, 0)
soon(lambda: memory(driver)[0] == {2 * MIB}, 5)
tell(left=memory(driver)[0], mine=allocate(driver, {2 * MIB})[0])
"""
    )

    assert told == {"too_much": 2, "fits": 0, "left": 2 * MIB, "mine": 0}


async def test_a_forked_child_holds_none_of_its_parents_locks_or_descriptors(
    container: Container,
) -> None:
    told = await container.run(
        """
import os
def books():
    return [fd for fd in os.listdir("/proc/self/fd")
            if os.path.realpath(f"/proc/self/fd/{fd}").startswith("/memfd:vcuda-books")]
driver = cuda()
driver.cuInit(0)
reader, writer = os.pipe()
if os.fork() == 0:
    maps = open("/proc/self/maps").read()
    os.write(writer, json.dumps([books(), "vcuda-books" in maps]).encode())
    os._exit(0)
tell(parent=[int(fd) for fd in books()], child=json.loads(os.read(reader, 1000)))
"""
    )

    assert told["child"] == [[], False]
    assert len(told["parent"]) == 1
    assert told["parent"][0] >= 64


async def test_without_an_allocation_everything_passes_through(work: Path, driver: Path) -> None:
    told = await Container(driver, None, work).run(
        f"""
driver = cuda()
tell(init=driver.cuInit(0), large=allocate(driver, {512 * MIB})[0], view=memory(driver),
     launch=launch(driver), refused=allocate(driver, {1024 * MIB})[0],
     calls=driver.stand_in_calls(b"cuMemAlloc_v2"))
"""
    )

    assert (told["init"], told["large"], told["launch"]) == (0, 0, 0)
    assert (told["refused"], told["calls"]) == (2, 2)
    assert told["view"] == [512 * MIB, 1024 * MIB]


async def test_a_silent_manager_makes_initialisation_fail_within_its_bound_and_nothing_gets_through(
    unanswered: Container,
) -> None:
    begun = time.monotonic()

    told = await unanswered.run(
        """
driver = cuda()
tell(init=driver.cuInit(0), allocate=allocate(driver, 1024)[0], launch=launch(driver),
     reached=driver.stand_in_calls(b"cuInit"))
"""
    )

    (complaint,) = told.pop("complaints")
    assert told == {"init": 802, "allocate": 802, "launch": 802, "reached": 0}
    silence = (
        r"vcuda: cuInit: the GPU manager did not answer on /etc/vcuda/vcuda\.sock for \d+\.\d s; "
    )
    assert re.match(silence, complaint)
    assert time.monotonic() - begun < 20  # it waits for 10, and once


async def test_a_manager_that_comes_back_in_time_is_waited_for(
    work: Path, driver: Path, manager: VirtualManager
) -> None:
    directory = work / "alloc" / ALLOCATION
    directory.mkdir(parents=True)
    running = asyncio.create_task(
        Container(driver, directory, work).run(
            f"""
driver = cuda()
reach({str(work / "started")!r})
tell(init=driver.cuInit(0), view=memory(driver))
"""
        )
    )
    await reached(work / "started", running)
    assert await allocation(manager) == directory

    assert await running == {"init": 0, "view": [LIMIT, LIMIT]}


async def test_a_changed_limit_holds_for_running_programs(
    container: Container, manager: VirtualManager
) -> None:
    program = container.begin(
        """
driver = cuda()
driver.cuInit(0)
before = memory(driver)[1]
pause()
tell(before=before, after=memory(driver)[1])
"""
    )
    await program.pauses()
    await allocation(manager, memory=2 * LIMIT)

    assert await program.ends() == {"before": LIMIT, "after": 2 * LIMIT}


async def test_a_driver_without_events_is_charged_by_estimate(
    work: Path, driver: Path, manager: VirtualManager
) -> None:
    container = Container(driver, await allocation(manager, cores=50), work)

    told = await container.run(
        """
import time
driver = cuda()
driver.cuInit(0)
begun = time.monotonic()
results = {launch(driver) for _ in range(2000)}
tell(results=list(results), seconds=time.monotonic() - begun,
     calls=driver.stand_in_calls(b"cuLaunchKernel"))
"""
    )

    assert (told["results"], told["calls"]) == ([0], 2000)
    assert told["seconds"] > 2000 * 50e-6 / 0.5 * 0.7


async def test_a_library_that_is_closed_and_opened_again_still_knows_what_is_held(
    container: Container,
) -> None:
    told = await container.run(
        f"""
import _ctypes
driver = cuda()
driver.cuInit(0)
allocate(driver, {LIMIT})
_ctypes.dlclose(driver._handle)
again = cuda()
again.cuInit(0)
tell(view=memory(again), more=allocate(again, 1)[0])
"""
    )

    assert told == {"view": [0, LIMIT], "more": 2}


async def test_a_second_copy_of_the_library_in_one_process_shares_the_limit(
    container: Container,
) -> None:
    told = await container.run(
        f"""
driver, libc = cuda(), ctypes.CDLL(None)
driver.cuInit(0)
allocate(driver, {LIMIT - 2 * MIB})
libc.dlmopen.restype = ctypes.c_void_p
copy = ctypes.CDLL("copy", handle=libc.dlmopen(ctypes.c_long(-1), b"libcuda.so.1", 2))
copy.cuInit(0)
too_much, fits = allocate(copy, {2 * MIB + 1})[0], allocate(copy, {2 * MIB})[0]
tell(too_much=too_much, fits=fits, first=allocate(driver, 1)[0])
"""
    )

    assert told == {"too_much": 2, "fits": 0, "first": 2}


async def test_threads_that_ask_a_silent_manager_at_once_wait_no_longer_than_one(
    unanswered: Container,
) -> None:
    told = await unanswered.run(
        """
import threading, time
management, results = nvml(), []
def ask():
    for _ in range(2):
        results.append(management.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(1), None))
begun = time.monotonic()
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell(results=results, seconds=time.monotonic() - begun)
"""
    )

    assert told["results"] == [9] * 16
    assert told["seconds"] < 2 * 2 + 12  # the patience of NVML, once for each round of eight


async def test_a_program_that_closes_all_descriptors_stays_limited_and_its_own_files_are_left_alone(
    container: Container, manager: VirtualManager, work: Path
) -> None:
    program = container.begin(
        f"""
import os
driver = cuda()
driver.cuInit(0)
os.closerange(3, 1024)
mine = os.open({str(work / "mine")!r}, os.O_RDWR | os.O_CREAT)
for number in range(64, 80):
    os.dup2(mine, number)
results = [allocate(driver, size)[0] for size in ({LIMIT - 3 * MIB}, {2 * MIB + 1}, 1)]
if (child := os.fork()) == 0:
    os._exit(sum(os.path.realpath(f"/proc/self/fd/{{n}}").endswith("mine") for n in range(64, 80)))
kept = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
pause()
tell(results=results, kept=kept)
"""
    )
    await program.pauses()
    (process,) = manager.usage(ALLOCATION).processes

    assert await program.ends() == {"results": [0, 2, 0], "kept": 16}
    assert process.held == (LIMIT,)
