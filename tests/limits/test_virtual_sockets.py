"""The virtual manager over real sockets, with real processes behind them."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from gpumanager.errors import GpuManagerError
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages import sealed_memory
from gpumanager.limits.pages.mapping import RegionBroken
from gpumanager.limits.pages.slot_file import SlotFile
from gpumanager.units import GIB, Bytes
from tests.limits.container_process import SECONDS, StartProcess, eventually
from tests.limits.metered_manager import Manage
from tests.limits.open_door import NAME, held, limit, open_descriptors, pids, say, virtual_manager
from tests.limits.programs.hello_client import OBSERVER, Regions, connect, hello

pytest_plugins = ["tests.limits.virtual_fixtures"]


async def test_a_process_gets_a_slot_a_read_only_configuration_and_the_books(
    sockets: VirtualManager, door: Path
) -> None:
    answer = await say(door, hello(pid=7))

    assert answer is not None
    assert (answer.status, answer.slot, answer.reason) == (0, 0, "")
    (books,) = answer.descriptors
    regions = Regions.of(answer)
    assert regions.memory_limit() == GIB
    assert regions.books.inner_pid[answer.slot] == 7  # as it calls itself
    assert sealed_memory.identity(books) == SlotFile.read(door.parent).books
    assert pids(sockets) == {os.getpid()}
    answer.close()


async def test_an_observer_sees_everything_and_takes_no_slot(
    sockets: VirtualManager, door: Path
) -> None:
    answer = await say(door, OBSERVER)

    assert answer is not None
    assert (answer.status, answer.slot, len(answer.descriptors)) == (0, -1, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(answer.descriptors[0], b"x")
    assert pids(sockets) == set()
    answer.close()


async def test_two_processes_get_descriptions_of_their_own_for_their_locks(
    door: Path,
) -> None:
    first, second = await say(door), await say(door, OBSERVER)
    assert first is not None
    assert second is not None

    os.lseek(first.descriptors[0], 77, os.SEEK_SET)

    assert os.lseek(second.descriptors[0], 0, os.SEEK_CUR) == 0
    first.close()
    second.close()


async def test_a_killed_process_gives_its_slot_and_bytes_back_by_its_pidfd(
    manage: Manage, start_process: StartProcess
) -> None:
    sockets = manage(poll_seconds=3600, sweep_seconds=3600)
    door = await sockets.open(NAME, [limit()]) / "vcuda.sock"
    process, other = await start_process(door), await start_process(door)
    await process.answer()
    await other.answer()
    await process.ask("hold 1000")
    await other.ask("hold 30")
    assert held(sockets) == 1030

    process.process.kill()

    assert await eventually(lambda: pids(sockets) == {other.pid})
    assert held(sockets) == 30


async def test_exec_keeps_the_slot_and_forgets_the_memory(
    sockets: VirtualManager, door: Path, start_process: StartProcess
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
    sockets: VirtualManager, door: Path, start_process: StartProcess
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
    sockets: VirtualManager, door: Path, start_process: StartProcess
) -> None:
    process = await start_process(door)
    await process.answer()
    assert await process.ask("limit") == GIB

    assert await sockets.open(NAME, [limit(2 * GIB)]) == door.parent

    assert await process.ask("limit") == 2 * GIB


async def test_the_link_to_the_driver_leads_where_it_was_last_pointed(
    root: Path, sockets: VirtualManager, door: Path
) -> None:
    for name in ("nvidia", "compute", "compute"):
        (root / name).mkdir(exist_ok=True)
        link = sockets.link_driver(NAME, root / name)

    assert link.parent == door.parent
    assert link.resolve() == (root / "compute").resolve()
    assert not list(link.parent.glob("*.new"))


async def test_64_processes_at_once_get_64_slots(sockets: VirtualManager, door: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    crowd = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.limits.programs.crowd", door, "64", stdin=pipe, stdout=pipe
    )
    assert crowd.stdout is not None
    told = json.loads(await asyncio.wait_for(crowd.stdout.readline(), SECONDS))

    assert sorted(told) == [[0, slot] for slot in range(64)]
    assert len(pids(sockets)) == 64
    await crowd.communicate(b"")
    assert await eventually(lambda: pids(sockets) == set())


async def test_closing_gives_everything_back(
    sockets: VirtualManager, root: Path, start_process: StartProcess
) -> None:
    await sockets.open(NAME, [limit()])
    await sockets.close(NAME)
    before = open_descriptors()  # with those of the arbiter, which stays
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
    sockets: VirtualManager, root: Path
) -> None:
    (root / "alloc" / "left-over").mkdir(parents=True)

    assert sockets.allocations() == (AllocationID("left-over"),)
    await sockets.close(AllocationID("left-over"))

    assert sockets.allocations() == ()


async def test_a_root_too_deep_for_a_socket_is_a_clear_error(root: Path) -> None:
    sockets = virtual_manager(root / ("x" * 90))
    before = open_descriptors()

    with pytest.raises(GpuManagerError, match="choose a shorter --virtual-manager-path"):
        await sockets.open(NAME, [limit()])

    await sockets.stop()
    assert open_descriptors() == before


async def test_broken_books_stop_the_opening_and_hold_nothing(
    sockets: VirtualManager, root: Path
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
    sockets: VirtualManager, name: str
) -> None:
    with pytest.raises(GpuManagerError, match="cannot name a directory"):
        await sockets.open(AllocationID(name), [limit()])


async def test_a_file_in_the_way_is_an_error_of_ours(root: Path) -> None:
    (root / "alloc").write_text("")

    with pytest.raises(GpuManagerError, match=r"cannot serve .*alloc/a1: "):
        await virtual_manager(root).open(NAME, [limit()])


def test_any_user_of_the_container_may_connect(door: Path) -> None:
    modes = [path.stat().st_mode & 0o777 for path in (door, door.parent)]

    assert modes == [0o777, 0o711]


async def test_limits_that_hold_already_are_not_written_again(sockets: VirtualManager) -> None:
    config = await sockets.open(NAME, [limit()]) / "config"
    before = config.read_bytes()
    await sockets.open(NAME, [limit()])
    again = config.read_bytes()

    await sockets.open(NAME, [limit(memory=Bytes(2 * GIB))])

    assert before == again != config.read_bytes()
