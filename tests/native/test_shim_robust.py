"""Programs that close, fork, exec, die and are cancelled, with a manager that comes and goes."""

import asyncio
import errno
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shim_container import ALLOCATION, LIMIT, Container, reached
from simulated_gpu import SimulatedNode

from gpumanager.units import MIB
from gpumanager.virtual.alive import locked
from gpumanager.virtual.books import Books
from gpumanager.virtual.manager import VirtualSockets
from vcuda_shim._shim import ffi, lib

pytestmark = pytest.mark.namespaces

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def cancelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("cancelled") / "cancelled"
    command = ["gcc", "-std=gnu11", "-O1", "-pthread", str(HERE / "cancelled.c"), "-ldl"]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=60)
    return program


@pytest.fixture
def node(work: Path, manager: VirtualSockets) -> Iterator[SimulatedNode]:
    made = SimulatedNode(work, manager)
    yield made
    made.close()


def alive_lock_held(directory: Path, slot: int) -> bool:
    with (directory / "books").open("r+b") as books:
        return locked(books.fileno(), slot)


async def test_a_process_holds_its_alive_lock_for_its_life(
    container: Container, work: Path
) -> None:
    assert container.allocation is not None
    running = asyncio.create_task(
        container.run(
            f"""
driver = cuda()
driver.cuInit(0)
reach({str(work / "up")!r})
wait_for({str(work / "seen")!r})
"""
        )
    )
    await reached(work / "up", running)
    while_alive = alive_lock_held(container.allocation, 0)
    (work / "seen").touch()
    await running

    assert while_alive
    assert not alive_lock_held(container.allocation, 0)


async def test_a_program_that_closed_all_its_descriptors_gets_the_books_again(
    container: Container, work: Path, manager: VirtualSockets
) -> None:
    assert container.allocation is not None
    running = asyncio.create_task(
        container.run(
            f"""
import os
def books():
    return sum(os.path.realpath(f"/proc/self/fd/{{fd}}").endswith("/books")
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
    container: Container, work: Path, manager: VirtualSockets
) -> None:
    running = asyncio.create_task(
        container.run(
            f"""
import os, time
driver = cuda()
driver.cuInit(0)
reach({str(work / "up")!r})
wait_for({str(work / "away")!r})
os.closerange(3, 1024)
refused = allocate(driver, {LIMIT} + 1)[0]
begun = time.monotonic()
results = {{allocate(driver, 1024)[0] for _ in range(1000)}}
tell(refused=refused, results=sorted(results), seconds=time.monotonic() - begun)
"""
        )
    )
    await reached(work / "up", running)
    await manager.stop()
    (work / "away").touch()
    told = await running

    assert (told["refused"], told["results"]) == (2, [0])
    assert told["seconds"] < 1.0


HOLDER = f"""
from shim_client import *
driver = cuda()
driver.cuInit(0)
assert allocate(driver, {LIMIT} - 1)[0] == SUCCESS
print("full", flush=True)
time.sleep(60)
"""


async def test_while_the_manager_is_away_peers_take_back_what_a_killed_process_held(
    container: Container, work: Path, manager: VirtualSockets
) -> None:
    running = asyncio.create_task(
        container.run(
            f"""
import subprocess, sys
driver = cuda()
driver.cuInit(0)
child = subprocess.Popen([sys.executable, "-c", {HOLDER!r}], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline().strip() == "full"
reach({str(work / "up")!r})
wait_for({str(work / "away")!r})
before = allocate(driver, 2)[0]
child.kill()
end = time.monotonic() + 1
while allocate(driver, {LIMIT})[0] != SUCCESS and time.monotonic() < end:
    time.sleep(0.01)
tell(before=before, left=memory(driver)[0])
"""
        )
    )
    await reached(work / "up", running)
    await manager.stop()
    (work / "away").touch()

    assert await running == {"before": 2, "left": 0}


async def test_when_all_slots_are_taken_the_user_reads_it_in_one_line(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Books, "claim", lambda *_: None)

    told = await container.run(
        """
driver = cuda()
tell(before=allocate(driver, 1)[0], init=[driver.cuInit(0), driver.cuInit(0)])
"""
    )

    (complaint,) = told["complaints"]
    assert (told["before"], told["init"]) == (802, [802, 802])
    assert complaint.startswith(
        "vcuda: cuInit: the GPU manager refused this process: "
        "all slots are taken: too many processes use the GPU"
    )


async def test_hooked_calls_before_cuinit_fail_without_a_word(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Books, "claim", lambda *_: None)

    assert await container.run("tell(early=allocate(cuda(), 1)[0])") == {"early": 802}


@pytest.mark.parametrize(
    "stderr",
    ["os.close(2)", "r, w = os.pipe(); os.dup2(w, 2); os.close(r)", "os.dup2(full(), 2)"],
    ids=["closed", "nobody reads", "full"],
)
async def test_a_line_that_cannot_be_written_harms_nobody(
    container: Container, monkeypatch: pytest.MonkeyPatch, stderr: str
) -> None:
    monkeypatch.setattr(Books, "claim", lambda *_: None)

    told = await container.run(
        f"""
import os, signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def full():
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(w, True)
        globals()["kept"] = r
        return w
{stderr}
tell(init=cuda().cuInit(0))
"""
    )

    assert told == {"init": 802}


def old_region(kind: str, magic: int, path: Path) -> int:
    """A region as an earlier version wrote it."""
    words: Any = ffi.new(f"{kind} *")
    words.magic, words.abi, words.size = magic, lib.VCUDA_REGION_ABI - 1, ffi.sizeof(kind)
    path.write_bytes(bytes(ffi.buffer(words)))
    return path.stat().st_size


async def test_regions_of_another_version_are_refused_with_a_clear_line_and_left_as_they_are(
    work: Path, driver: Path
) -> None:
    """A manager of another version, whose regions are not ours."""
    directory = work / "old"
    directory.mkdir()
    old_region("struct vcuda_config", lib.VCUDA_CONFIG_MAGIC, directory / "config")
    old_region("struct vcuda_books", lib.VCUDA_BOOKS_MAGIC, directory / "books")
    before = (directory / "books").read_bytes()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "vcuda.sock"))
        listener.listen()
        listener.setblocking(False)
        serving = asyncio.create_task(welcome_all(listener, directory))

        told = await Container(driver, directory, work).run("tell(init=cuda().cuInit(0))")
        serving.cancel()

    (complaint,) = told["complaints"]
    assert told["init"] == 802
    assert f"cannot be used (error {errno.EPROTO})" in complaint
    assert (directory / "books").read_bytes() == before


async def welcome_all(listener: socket.socket, directory: Path) -> None:
    words: Any = ffi.new("struct vcuda_welcome *")
    words.magic, words.version = lib.VCUDA_PROTOCOL_MAGIC, lib.VCUDA_PROTOCOL_VERSION
    words.kind, words.slot = lib.VCUDA_WELCOME, 0
    loop = asyncio.get_running_loop()
    while True:
        connection, _ = await loop.sock_accept(listener)
        config, books = ((directory / name).open("r+b") for name in ("config", "books"))
        with connection, config, books:
            await loop.sock_recv(connection, 64)
            sent = [config.fileno(), books.fileno()]
            socket.send_fds(connection, [bytes(ffi.buffer(words))], sent)


async def test_a_server_that_forks_its_workers_after_cuinit_has_one_slot_for_each(
    container: Container,
) -> None:
    told = await container.run(
        f"""
import os
driver = cuda()
driver.cuInit(0)
allocate(driver, {MIB})
(taken, tell_taken), (go, gone) = os.pipe(), os.pipe()
workers = []
for _ in range(8):
    if (pid := os.fork()) == 0:
        os.close(gone)
        results = [driver.cuInit(0), *(allocate(driver, {MIB})[0] for _ in range(2))]
        os.write(tell_taken, bytes(results))
        os.read(go, 1)
        os._exit(0)
    workers.append(pid)
results = [list(os.read(taken, 3)) for _ in workers]
left, refused = memory(driver)[0], allocate(driver, {LIMIT} - 17 * {MIB} + 1)[0]
os.close(gone)
for pid in workers: os.waitpid(pid, 0)
end = time.monotonic() + 1
while (after := allocate(driver, {LIMIT} - {MIB})[0]) != SUCCESS and time.monotonic() < end:
    time.sleep(0.002)
tell(results=results, left=left, refused=refused, after=after)
"""
    )

    assert told == {
        "results": [[0, 0, 0]] * 8,
        "left": LIMIT - 17 * MIB,
        "refused": 2,
        "after": 0,
    }


async def test_300_processes_that_start_at_once_all_get_their_memory(
    container: Container, manager: VirtualSockets, work: Path
) -> None:
    running = asyncio.create_task(
        container.run(
            f"""
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
for _ in range(300): results |= {{*os.read(told, 1)}}
reach({str(work / "up")!r})
wait_for({str(work / "seen")!r})
os.close(over)
tell(results=sorted(results))
"""
        )
    )
    await reached(work / "up", running)
    usage = manager.usage(ALLOCATION)
    (work / "seen").touch()

    assert await running == {"results": [0]}
    assert [len(usage.processes), usage.devices[0].held] == [300, 300 * 4096]


async def test_a_daemon_that_forks_twice_holds_what_it_took_when_its_parents_are_gone(
    container: Container, manager: VirtualSockets, work: Path
) -> None:
    running = asyncio.create_task(
        container.run(
            f"""
import os
driver = cuda()
driver.cuInit(0)
allocate(driver, {MIB})
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(3, 1024)
        driver.cuInit(0)
        allocate(driver, 3 * {MIB})
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

    assert sorted(process.held for process in processes) == [(MIB,), (3 * MIB,)]


async def test_programs_started_by_vfork_and_exec_take_nothing_from_their_parent(
    container: Container, manager: VirtualSockets
) -> None:
    told = await container.run(
        f"""
import os, subprocess
driver = cuda()
driver.cuInit(0)
allocate(driver, {MIB})
children = [subprocess.Popen(["/bin/sleep", "0.3"], close_fds=False) for _ in range(20)]
children += [os.posix_spawn("/bin/true", ["true"], os.environ) for _ in range(20)]
more = allocate(driver, {LIMIT} - {MIB})[0]
for child in children[:20]: child.wait()
tell(more=more, left=memory(driver)[0])
"""
    )

    assert told == {"more": 0, "left": 0}


async def test_a_container_that_starts_again_finds_nothing_of_its_last_run(
    container: Container,
) -> None:
    script = f"""
import os, signal
driver = cuda()
driver.cuInit(0)
tell(got=allocate(driver, {LIMIT})[0])
{{}}
"""
    assert await container.run(script.format("")) == {"got": 0}
    assert await container.run(script.format("")) == {"got": 0}


async def test_the_manager_is_replaced_under_running_programs_without_a_byte_lost(
    work: Path, node: SimulatedNode, manager: VirtualSockets
) -> None:
    container = await node.container("one", LIMIT)
    running = asyncio.create_task(
        container.run(
            f"""
driver = cuda()
begin(driver)
held, wrong, rounds = [], 0, 0
end = time.monotonic() + 2
while time.monotonic() < end:
    result, address = allocate(driver, {LIMIT // 8})
    if result == SUCCESS:
        held.append(address)
    else:
        wrong += len(held) != 8
        rounds += 1
        while held:
            free(driver, held.pop())
    time.sleep(0.001)
tell(wrong=wrong, left=memory(driver)[0] + len(held) * {LIMIT // 8}, many=rounds > 10)
"""
        )
    )
    replaced, current = 0, manager
    while not running.done():
        await current.stop()
        current = VirtualSockets(work)
        await node.open(current, "one", LIMIT)
        await asyncio.sleep(0.02)
        replaced += 1
    await current.stop()

    assert await running == {"wrong": 0, "left": LIMIT, "many": True}
    assert replaced > 10
    assert node.peaks() == [LIMIT]


@pytest.mark.parametrize("kind", ["memory", "pool", "module"])
async def test_threads_cancelled_at_any_moment_leave_nothing_locked_and_nothing_lost(
    node: SimulatedNode, cancelled: Path, kind: str
) -> None:
    container = await node.container("one", LIMIT)

    told = await container.run(
        f"""
import subprocess
ran = subprocess.run([{str(cancelled)!r}, "150", str({LIMIT} // 40), {kind!r}],
                     capture_output=True, text=True, timeout=30)
print(ran.stdout or json.dumps({{"failed": ran.returncode}}), end="", flush=True)
"""
    )

    assert told == {"before": LIMIT, "after": LIMIT, "stay": 0}
    assert max(node.peaks()) <= LIMIT
