"""Managers that come and go, full books, old regions, cancelled threads: nobody is harmed."""

import asyncio
import errno
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import Books
from gpumanager.limits.turns import Turns
from tests.native.gpu_node import GpuNode
from tests.native.shim_container import LIMIT, Container, allocation
from vcuda_shim._shim import ffi, lib

pytestmark = pytest.mark.namespaces


PROGRAM = Path(__file__).with_name("cancelled.c")


@pytest.fixture(scope="session")
def cancelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("cancelled") / "cancelled"
    command = ["gcc", "-std=gnu11", "-O1", "-pthread", str(PROGRAM), "-ldl"]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=300)
    return program


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
        with connection, (directory / "books").open("r+b") as books:
            await loop.sock_recv(connection, 64)
            socket.send_fds(connection, [bytes(ffi.buffer(words))], [books.fileno()])


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
    work: Path, one_gpu: GpuNode, manager: VirtualManager
) -> None:
    container = await one_gpu.container(LIMIT)
    running = asyncio.create_task(
        container.run(
            f"""
driver = cuda()
begin(driver)
held, wrong, rounds = [], 0, 0
while rounds <= 10 or not Path({str(work / "enough")!r}).exists():
    result, address = allocate(driver, {LIMIT // 8})
    if result == SUCCESS:
        held.append(address)
    else:
        wrong += len(held) != 8
        rounds += 1
        while held:
            free(driver, held.pop())
    time.sleep(0.001)
tell(wrong=wrong, left=memory(driver)[0] + len(held) * {LIMIT // 8})
"""
        )
    )
    replaced, current = 0, manager
    while not running.done():
        await current.stop()
        current = VirtualManager(work, turns=Turns(work / "turns"))
        await allocation(current, memory=LIMIT)
        await asyncio.sleep(0.02)
        replaced += 1
        if replaced > 10:
            (work / "enough").touch()
    await current.stop()

    assert await running == {"wrong": 0, "left": LIMIT}
    assert one_gpu.peaks() == [LIMIT]


@pytest.mark.parametrize("kind", ["memory", "pool", "module"])
async def test_threads_cancelled_at_any_moment_leave_nothing_locked_and_nothing_lost(
    one_gpu: GpuNode, cancelled: Path, kind: str
) -> None:
    container = await one_gpu.container(LIMIT)

    told = await container.run(
        f"""
import subprocess
ran = subprocess.run([{str(cancelled)!r}, "150", str({LIMIT} // 40), {kind!r}],
                     capture_output=True, text=True)
print(ran.stdout or json.dumps({{"failed": ran.returncode}}), end="", flush=True)
"""
    )

    assert told == {"before": LIMIT, "after": LIMIT, "stay": 0}
    assert max(one_gpu.peaks()) <= LIMIT
