"""Directories made ahead: whoever gets one cannot tell, and none outlives its manager for long."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from container_process import SECONDS, eventually
from open_door import NAME, limit, pids, say

from gpumanager.units import GIB, Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.spares import PREFIX, READY, Spare, Spares
from gpumanager.virtual.values import AllocationID

pytest_plugins = ["virtual_fixtures"]


@pytest.fixture
async def ready(sockets: VirtualSockets, root: Path) -> AsyncIterator[VirtualSockets]:
    """A manager with its spares."""
    keeping = asyncio.create_task(sockets.keep_spares())
    await eventually(lambda: len(spares(root)) == READY)
    yield sockets
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping


@pytest.fixture
def leftover(root: Path) -> Iterator[Spare]:
    spare = Spare.make(root / "alloc" / f"{PREFIX}of-the-dead")
    yield spare
    spare.close()


def spares(root: Path) -> set[str]:
    """Those that are complete, by inode: a name comes and goes."""
    return {str(path.stat().st_ino) for path in (root / "alloc").glob(f"{PREFIX}*/vcuda.sock")}


async def test_a_spare_becomes_the_allocation_and_another_takes_its_place(
    ready: VirtualSockets, root: Path
) -> None:
    before = spares(root)

    directory = await ready.open(NAME, [limit()])

    assert str((directory / "vcuda.sock").stat().st_ino) in before
    assert ready.allocations() == (NAME,)
    assert len(before & spares(root)) == READY - 1
    await eventually(lambda: len(spares(root)) == READY)


async def test_what_is_served_from_a_spare_is_the_allocation_by_its_own_name(
    ready: VirtualSockets,
) -> None:
    directory = await ready.open(NAME, [limit(memory=GIB)])

    answer = await say(directory / "vcuda.sock")

    assert answer is not None
    assert answer.status == 0
    assert pids(ready) == {os.getpid()}
    assert ready.usage(NAME).allocation == NAME
    assert [one.memory for one in ready.limits(NAME)] == [GIB]
    answer.close()


async def test_another_manager_goes_on_with_what_was_a_spare(
    ready: VirtualSockets, root: Path
) -> None:
    await ready.open(NAME, [limit(memory=GIB)])
    await ready.stop()
    later = VirtualSockets(root)

    await later.open(NAME, [limit(memory=GIB)])

    assert later.usage(NAME).allocation == NAME
    await later.stop()


async def test_an_allocation_that_has_its_directory_keeps_it(
    ready: VirtualSockets, root: Path
) -> None:
    kept = Spare.make(root / "alloc" / NAME)
    inode = (root / "alloc" / NAME / "books").stat().st_ino

    directory = await ready.open(NAME, [limit()])

    assert (directory / "books").stat().st_ino == inode
    assert len(spares(root)) == READY
    kept.close()


async def test_more_allocations_than_spares_are_served_all_the_same(ready: VirtualSockets) -> None:
    names = [AllocationID(f"pod-{number}") for number in range(2 * READY + 1)]

    for name in names:
        await ready.open(name, [limit()])

    assert ready.allocations() == tuple(names)
    assert [ready.usage(name).allocation for name in names] == names


async def test_a_spare_that_somebody_removed_is_passed_over(
    ready: VirtualSockets, root: Path
) -> None:
    for gone in (root / "alloc").glob(f"{PREFIX}*"):
        gone.rename(root / gone.name)

    directory = await ready.open(NAME, [limit()])

    assert (directory / "vcuda.sock").is_socket()


async def test_the_spares_of_a_manager_that_was_killed_are_removed_by_the_next(
    sockets: VirtualSockets, root: Path, leftover: Spare
) -> None:
    keeping = asyncio.create_task(sockets.keep_spares())

    await eventually(lambda: len(spares(root)) == READY)

    assert not leftover.directory.exists()
    keeping.cancel()


async def test_a_spare_is_no_allocation_until_it_has_its_name(
    sockets: VirtualSockets, leftover: Spare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "rename", killed)

    with pytest.raises(KeyboardInterrupt):
        leftover.become(leftover.directory.with_name(NAME))

    assert sockets.allocations() == ()


async def test_a_spare_with_its_name_is_complete_whatever_comes_after(
    sockets: VirtualSockets, leftover: Spare
) -> None:
    leftover.become(leftover.directory.with_name(NAME))

    assert sockets.allocations() == (NAME,)
    assert sockets.usage(NAME).allocation == NAME


async def test_spares_go_with_whoever_keeps_them(root: Path) -> None:
    keeping = asyncio.create_task(Spares(root / "alloc").keep())
    await eventually(lambda: len(spares(root)) == READY)

    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)

    assert list((root / "alloc").iterdir()) == []


async def test_a_spare_that_is_finished_when_nobody_wants_it_any_more_goes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, wanted, make = asyncio.Event(), threading.Event(), Spare.make
    loop = asyncio.get_running_loop()

    def late(directory: Path) -> Spare:
        spare = make(directory)
        loop.call_soon_threadsafe(made.set)
        wanted.wait(SECONDS)
        return spare

    monkeypatch.setattr(Spare, "make", late)
    keeping = asyncio.create_task(Spares(root / "alloc").keep())
    async with asyncio.timeout(SECONDS):
        await made.wait()

    keeping.cancel()
    wanted.set()
    await asyncio.gather(keeping, return_exceptions=True)

    assert list((root / "alloc").iterdir()) == []


async def test_no_directory_is_made_ahead_while_somebody_waits_for_us(root: Path) -> None:
    calm, asked = asyncio.Event(), asyncio.Event()

    async def come() -> None:
        asked.set()
        await calm.wait()

    keeping = asyncio.create_task(Spares(root / "alloc", come).keep())
    async with asyncio.timeout(SECONDS):
        await asked.wait()
    assert spares(root) == set()
    calm.set()
    await eventually(lambda: len(spares(root)) == READY)

    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_limits_that_hold_already_are_not_written_again(sockets: VirtualSockets) -> None:
    config = await sockets.open(NAME, [limit()]) / "config"
    before = config.read_bytes()
    await sockets.open(NAME, [limit()])
    again = config.read_bytes()

    await sockets.open(NAME, [limit(memory=Bytes(2 * GIB))])

    assert before == again != config.read_bytes()


def killed(*_: object) -> None:
    raise KeyboardInterrupt
