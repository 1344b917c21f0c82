"""The virtual manager over real sockets, with real processes behind them."""

import asyncio
import errno
import json
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from container_process import HERE, ContainerProcess, eventually
from hello_client import OBSERVER, Answer, Regions, connect, exchange, hello, receive

from gpumanager.allocator.ports import VirtualManager
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB, Bytes
from gpumanager.virtual.books import Books
from gpumanager.virtual.listener import MAX_CALLERS
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.mapping import RegionBroken
from gpumanager.virtual.values import AllocationID, Limit

pytest_plugins = ["virtual_fixtures"]

GPU = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0")
NAME = AllocationID("a1")
StartProcess = Callable[..., Awaitable[ContainerProcess]]


def limit(memory: int = GIB) -> Limit:
    return Limit(GPU, memory=Bytes(memory), cores=30, ceiling=30)


def pids(sockets: VirtualSockets) -> set[int]:
    return {process.pid for process in sockets.usage(NAME).processes}


def held(sockets: VirtualSockets) -> int:
    return sockets.usage(NAME).devices[0].held


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def say(path: Path, message: bytes | None = None) -> Answer | None:
    """HELLO of this very process."""
    return await asyncio.to_thread(exchange, path, hello() if message is None else message)


@pytest.fixture
async def door(sockets: VirtualSockets) -> Path:
    """The socket of one open allocation."""
    return await sockets.open(NAME, [limit()]) / "vcuda.sock"


def test_it_is_the_virtual_manager_the_allocator_asks_for(root: Path) -> None:
    manager: VirtualManager = VirtualSockets(root)
    assert manager is not None


async def test_a_process_gets_a_slot_a_read_only_configuration_and_the_books(
    sockets: VirtualSockets, door: Path
) -> None:
    answer = await say(door)

    assert answer is not None
    assert (answer.status, answer.slot, answer.reason) == (0, 0, "")
    config, books = answer.descriptors
    assert Regions.of(answer).memory_limit() == GIB
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(config, b"x")
    assert os.fstat(books).st_ino == (door.parent / "books").stat().st_ino
    assert pids(sockets) == {os.getpid()}
    answer.close()


async def test_the_books_say_what_a_process_calls_itself(
    sockets: VirtualSockets, door: Path
) -> None:
    answer = await say(door, hello(pid=7))

    assert answer is not None
    regions = Regions.of(answer)
    assert regions.books.inner_pid[answer.slot] == 7
    assert pids(sockets) == {os.getpid()}


async def test_an_observer_sees_everything_and_takes_no_slot(
    sockets: VirtualSockets, door: Path
) -> None:
    answer = await say(door, OBSERVER)

    assert answer is not None
    assert (answer.status, answer.slot, len(answer.descriptors)) == (0, -1, 2)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(answer.descriptors[1], b"x")
    assert pids(sockets) == set()
    answer.close()


async def test_two_processes_get_descriptions_of_their_own_for_their_locks(
    door: Path, start_process: StartProcess
) -> None:
    first, second = await say(door), await say(door, OBSERVER)
    assert first is not None
    assert second is not None

    os.lseek(first.descriptors[1], 77, os.SEEK_SET)

    assert os.lseek(second.descriptors[1], 0, os.SEEK_CUR) == 0
    first.close()
    second.close()


async def test_a_killed_process_gives_its_slot_and_bytes_back_within_a_second(
    sockets: VirtualSockets, door: Path, start_process: StartProcess
) -> None:
    process, other = await start_process(door), await start_process(door)
    await process.answer()
    await other.answer()
    await process.ask("hold 1000")
    await other.ask("hold 30")
    assert held(sockets) == 1030

    process.process.kill()

    assert await eventually(lambda: pids(sockets) == {other.pid}, within=1.0)
    assert held(sockets) == 30


async def test_where_the_kernel_has_no_pidfd_a_death_is_noticed_all_the_same(
    root: Path, start_process: StartProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = VirtualSockets(root, poll_seconds=0.02)
    door = await sockets.open(NAME, [limit()]) / "vcuda.sock"
    process = await start_process(door)
    monkeypatch.delattr(os, "pidfd_open")
    await process.answer()

    process.process.kill()

    assert await eventually(lambda: pids(sockets) == set())
    await sockets.stop()


async def test_exec_keeps_the_slot_and_forgets_the_memory(
    sockets: VirtualSockets, door: Path, start_process: StartProcess
) -> None:
    process = await start_process(door)
    first = await process.answer()
    await process.ask("hold 1000")

    second = await process.ask("exec")

    assert second == first
    assert held(sockets) == 0
    assert pids(sockets) == {process.pid}
    process.process.kill()
    assert await eventually(lambda: pids(sockets) == set())


async def test_a_second_copy_of_the_shim_in_a_program_shares_its_slot_and_forgets_nothing(
    sockets: VirtualSockets, door: Path, start_process: StartProcess
) -> None:
    process = await start_process(door)
    _status, slot, _reason = await process.answer()
    await process.ask("hold 1000")

    assert await process.ask("again") == slot
    assert held(sockets) == 1000
    await sockets.stop()
    await sockets.open(NAME, [limit()])
    assert await process.ask("again") == slot
    assert held(sockets) == 1000


async def test_a_changed_limit_reaches_a_running_process(
    sockets: VirtualSockets, door: Path, start_process: StartProcess
) -> None:
    process = await start_process(door)
    await process.answer()
    assert await process.ask("limit") == GIB

    assert await sockets.open(NAME, [limit(2 * GIB)]) == door.parent

    assert await process.ask("limit") == 2 * GIB


async def test_64_processes_at_once_get_64_slots(sockets: VirtualSockets, door: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    crowd = await asyncio.create_subprocess_exec(
        sys.executable, HERE / "crowd.py", door, "64", stdin=pipe, stdout=pipe
    )
    assert crowd.stdout is not None
    told = json.loads(await asyncio.wait_for(crowd.stdout.readline(), 30))

    assert sorted(told) == [[0, slot] for slot in range(64)]
    assert len(pids(sockets)) == 64
    await crowd.communicate(b"")
    assert await eventually(lambda: pids(sockets) == set())


async def test_another_version_is_told_so(door: Path) -> None:
    answer = await say(door, hello(version=2))

    assert answer is not None
    assert (answer.status, answer.slot, answer.descriptors) == (-errno.EPROTO, -1, ())
    assert "protocol 2" in answer.reason


async def test_when_the_books_are_full_the_process_is_told_why(
    sockets: VirtualSockets, door: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Books, "claim", lambda *_: None)

    answer = await say(door)

    assert answer is not None
    assert answer.status == -errno.ENOSPC
    assert answer.reason == "all slots are taken: too many processes use the GPU"


async def test_regions_that_were_removed_are_an_answer_not_a_crash(door: Path) -> None:
    (door.parent / "books").unlink()

    answer = await say(door)

    assert answer is not None
    assert answer.status == -errno.EAGAIN
    assert answer.reason == "manager: opening the regions: No such file or directory"


@pytest.mark.parametrize(
    "garbage",
    [b"\0", b"\xff" * 5000, b"PRI * HTTP/2.0\r\n", hello() * 50],
    ids=["zero", "noise", "HTTP/2", "too much"],
)
async def test_garbage_leaves_the_next_caller_unharmed(door: Path, garbage: bytes) -> None:
    with connect(door) as connection:
        connection.sendall(garbage)
        answer = await say(door)

    assert answer is not None
    assert answer.status == 0
    answer.close()


@pytest.mark.parametrize("half", [b"", hello()[:1], hello()[:63]], ids=["0", "1", "63"])
async def test_silence_is_hung_up_on_after_the_deadline(door: Path, half: bytes) -> None:
    with connect(door) as connection:
        connection.sendall(half)

        assert await asyncio.to_thread(receive, connection) is None


async def test_a_hello_in_pieces_is_a_hello(door: Path) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(door))
        for byte in hello():
            await loop.sock_sendall(connection, bytes([byte]))
            await asyncio.sleep(0)
        connection.setblocking(True)
        answer = await asyncio.to_thread(receive, connection)

    assert answer is not None
    assert answer.status == 0
    answer.close()


async def test_callers_who_hang_up_before_their_welcome_hold_no_slot(
    sockets: VirtualSockets, door: Path
) -> None:
    for _ in range(20):
        with connect(door) as connection:
            connection.sendall(hello())

    answer = await say(door, OBSERVER)

    assert answer is not None
    answer.close()
    assert pids(sockets) == set()


async def test_a_crowd_of_silent_callers_delays_a_good_one_by_the_deadline_at_most(
    door: Path,
) -> None:
    crowd = [connect(door) for _ in range(3 * MAX_CALLERS)]

    answer = await asyncio.wait_for(say(door), timeout=5)

    assert answer is not None
    assert answer.status == 0
    answer.close()
    for connection in crowd:
        connection.close()


async def test_thousands_of_callers_of_all_kinds_leave_no_descriptor_behind(
    sockets: VirtualSockets, door: Path
) -> None:
    def storm() -> None:
        for number in range(600):
            with connect(door) as connection:
                if number % 3 == 1:
                    connection.sendall(b"\0\1\2")
            if number % 3 == 2:
                answer = exchange(door, OBSERVER)
                assert answer is not None
                answer.close()

    await asyncio.to_thread(storm)
    before = open_descriptors()

    for _ in range(5):
        await asyncio.to_thread(storm)

    assert await eventually(lambda: open_descriptors() == before)


def first_free_descriptor() -> int:
    free = os.dup(0)
    os.close(free)
    return free


async def test_a_manager_out_of_descriptors_serves_again_when_it_has_some(
    door: Path, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connect(door) as connection:
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free_descriptor(), hard))
        try:
            assert await eventually(lambda: "cannot accept" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connection.sendall(hello())
        answer = await asyncio.to_thread(receive, connection)

    assert answer is not None
    assert answer.status == 0
    answer.close()


async def test_closing_gives_everything_back(
    sockets: VirtualSockets, root: Path, start_process: StartProcess
) -> None:
    before = open_descriptors()
    door = await sockets.open(NAME, [limit()]) / "vcuda.sock"
    answer = await say(door)
    assert answer is not None
    answer.close()
    silent = connect(door)

    await sockets.close(NAME)
    silent.close()

    assert open_descriptors() == before
    assert not door.parent.exists()
    assert sockets.allocations() == ()
    await sockets.close(NAME)


async def test_what_a_crash_left_over_is_listed_and_can_be_closed(
    sockets: VirtualSockets, root: Path
) -> None:
    (root / "alloc" / "left-over").mkdir(parents=True)

    assert sockets.allocations() == (AllocationID("left-over"),)
    await sockets.close(AllocationID("left-over"))

    assert sockets.allocations() == ()


async def test_a_root_too_deep_for_a_socket_is_a_clear_error(root: Path) -> None:
    sockets = VirtualSockets(root / ("x" * 90))
    before = open_descriptors()

    with pytest.raises(GpuManagerError, match="choose a shorter --virtual-manager-path"):
        await sockets.open(NAME, [limit()])

    assert open_descriptors() == before


async def test_broken_books_stop_the_opening_and_hold_nothing(
    sockets: VirtualSockets, root: Path
) -> None:
    before = open_descriptors()
    directory = root / "alloc" / NAME
    directory.mkdir(parents=True)
    (directory / "books").write_bytes(b"no books at all, but some words")

    with pytest.raises(RegionBroken, match="alloc/a1/books"):
        await sockets.open(NAME, [limit()])

    assert open_descriptors() == before


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "x" * 65, "a\n"])
async def test_a_name_that_could_leave_the_root_is_refused(
    sockets: VirtualSockets, name: str
) -> None:
    with pytest.raises(GpuManagerError, match="cannot name a directory"):
        await sockets.open(AllocationID(name), [limit()])


async def test_a_file_in_the_way_is_an_error_of_ours(root: Path) -> None:
    (root / "alloc").write_text("")

    with pytest.raises(GpuManagerError, match=r"cannot serve .*alloc/a1: "):
        await VirtualSockets(root).open(NAME, [limit()])


def test_any_user_of_the_container_may_connect(door: Path) -> None:
    modes = [path.stat().st_mode & 0o777 for path in (door, door.parent)]

    assert modes == [0o777, 0o755]
