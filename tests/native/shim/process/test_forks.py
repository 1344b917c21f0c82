"""Programs that fork, exec and start by the hundred: each process has a slot, and only its own."""

import asyncio
from pathlib import Path

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.units import MIB
from tests.native.shim_container import ALLOCATION, LIMIT, Container, allocation, reached

pytestmark = pytest.mark.namespaces


async def test_a_server_that_forks_its_workers_after_cuinit_has_one_slot_for_each(
    container: Container,
) -> None:
    told = await container.run(
        f"""
import os
driver = cuda()
driver.cuInit(0)
allocate(driver, {2 * MIB})
(taken, tell_taken), (go, gone) = os.pipe(), os.pipe()
workers = []
for _ in range(8):
    if (pid := os.fork()) == 0:
        os.close(gone)
        results = [driver.cuInit(0), *(allocate(driver, {2 * MIB - 1})[0] for _ in range(2))]
        os.write(tell_taken, bytes(results))
        os.read(go, 1)
        os._exit(0)
    workers.append(pid)
results = [list(os.read(taken, 3)) for _ in workers]
left, refused = memory(driver)[0], allocate(driver, {LIMIT - 34 * MIB + 1})[0]
os.close(gone)
for pid in workers: os.waitpid(pid, 0)
after = soon(lambda: allocate(driver, {LIMIT - 2 * MIB})[0] == SUCCESS)
tell(results=results, left=left, refused=refused, after=after)
"""
    )

    assert told == {
        "results": [[0, 0, 0]] * 8,
        "left": LIMIT - 34 * MIB,
        "refused": 2,
        "after": True,
    }


async def test_300_processes_that_start_at_once_all_get_their_memory(
    driver: Path, manager: VirtualManager, work: Path
) -> None:
    container = Container(driver, await allocation(manager, memory=1024 * MIB), work)
    program = container.begin(
        """
import os
(start, go), (told, tell_it), (end, over) = os.pipe(), os.pipe(), os.pipe()
driver = cuda()
for _ in range(300):
    if os.fork() == 0:
        os.close(go), os.close(over)
        os.read(start, 1)
        os.write(tell_it, bytes([driver.cuInit(0) or allocate(driver, 4096)[0]]))
        os.read(end, 1)
        os._exit(0)
os.close(go)
results = set()
for _ in range(300): results |= {*os.read(told, 1)}
pause()
os.close(over)
tell(results=sorted(results))
"""
    )
    await program.pauses()
    usage = manager.usage(ALLOCATION)

    assert await program.ends() == {"results": [0]}
    assert [len(usage.processes), usage.devices[0].held] == [
        300,
        300 * 2 * MIB,
    ]  # each has a page of its own


async def test_a_daemon_that_forks_twice_holds_what_it_took_when_its_parents_are_gone(
    container: Container, manager: VirtualManager, work: Path
) -> None:
    running = asyncio.create_task(
        container.run(
            f"""
import os
driver = cuda()
driver.cuInit(0)
allocate(driver, {2 * MIB})
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(3, 1024)
        driver.cuInit(0)
        allocate(driver, {4 * MIB})
        reach({str(work / "up")!r})
        wait_for({str(work / "seen")!r})
        os._exit(0)
    os._exit(0)
os.wait()
wait_for({str(work / "seen")!r})
time.sleep(0.2)
tell(left=memory(driver)[0])
"""
        )
    )
    await reached(work / "up", running)
    processes = manager.usage(ALLOCATION).processes
    (work / "seen").touch()
    await running

    assert sorted(process.held for process in processes) == [(2 * MIB,), (4 * MIB,)]


async def test_programs_started_by_vfork_and_exec_take_nothing_from_their_parent(
    container: Container,
) -> None:
    told = await container.run(
        f"""
import os, subprocess
driver = cuda()
driver.cuInit(0)
allocate(driver, {2 * MIB})
children = [subprocess.Popen(["/bin/sleep", "0.3"], close_fds=False) for _ in range(20)]
children += [os.posix_spawn("/bin/true", ["true"], os.environ) for _ in range(20)]
more = allocate(driver, {LIMIT - 2 * MIB})[0]
for child in children[:20]: child.wait()
tell(more=more, left=memory(driver)[0])
"""
    )

    assert told == {"more": 0, "left": 0}
