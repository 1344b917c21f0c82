"""Turns: the files by which containers learn them, the hints, and the arbiter behind."""

import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import HINTS_OFFSET
from gpumanager.limits.turns import MAX_GPUS, Turns
from gpumanager.limits.values import Limit
from gpumanager.names import CONTAINER_TURNS
from tests.limits.container_process import StartProcess, eventually
from tests.limits.metered_manager import Manage
from tests.limits.open_door import GPU, NAME, limit, say
from vcuda_shim._shim import ffi, lib

pytest_plugins = ["tests.limits.virtual_fixtures"]

HINT_BYTES = ffi.sizeof("struct vcuda_hint")
WHOLE = replace(limit(), cores=100, ceiling=100)


@pytest.fixture
async def manager(manage: Manage) -> VirtualManager:
    return manage()


async def folder(manager: VirtualManager, name: AllocationID = NAME) -> Path:
    await manager.open(name, [limit()])
    found = manager.turns(name)
    assert found is not None
    return found


def words(folder: Path) -> Any:
    found = ffi.new("struct vcuda_turns *")
    ffi.buffer(found)[:] = (folder / "words").read_bytes()
    return found


def turn(folder: Path, device: int = 0) -> int:
    return int(words(folder).of[device].turn)


def want(folder: Path, books: int, slot: int, *, waiting: int = 1) -> None:
    """What a process does that waits for its turn."""
    until = time.monotonic_ns() + 10**12
    hint = ffi.new("struct vcuda_hint *", {"waiting": waiting, "waits_until_ns": until})
    os.pwrite(books, bytes(ffi.buffer(hint)), HINTS_OFFSET + slot * HINT_BYTES)
    ring = os.open(folder / "ring", os.O_WRONLY | os.O_NONBLOCK)
    os.write(ring, b"r")
    os.close(ring)


async def test_the_files_are_there_for_any_user_to_read_and_to_ring(
    manager: VirtualManager,
) -> None:
    found = await folder(manager)

    made = {path.name: path.stat().st_mode for path in found.iterdir()}
    assert made == {"words": stat.S_IFREG | 0o644, "ring": stat.S_IFIFO | 0o666}
    assert words(found).magic == lib.VCUDA_TURNS_MAGIC
    assert (words(found).abi, words(found).device_count) == (lib.VCUDA_TURNS_ABI, 1)
    assert (manager.directory(NAME) / "turns").is_dir()


async def test_a_process_that_waits_is_granted_its_turn(manager: VirtualManager) -> None:
    found = await folder(manager)
    answer = await say(manager.directory(NAME) / "vcuda.sock")
    assert answer is not None

    want(found, answer.descriptors[0], answer.slot)

    assert await eventually(lambda: bool(turn(found) & lib.VCUDA_TURN_GRANTED))
    answer.close()


async def test_a_process_that_died_in_its_turn_gives_it_up(
    manager: VirtualManager, start_process: StartProcess
) -> None:
    first, second = await folder(manager), await folder(manager, AllocationID("a2"))
    dying = await start_process(manager.directory(NAME) / "vcuda.sock")
    slot = (await dying.answer())[1]
    answer = await say(manager.directory(AllocationID("a2")) / "vcuda.sock")
    assert answer is not None
    books = os.open(f"/proc/{dying.pid}/fd/{memfd(dying.pid)}", os.O_RDWR)
    want(first, books, slot)
    assert await eventually(lambda: bool(turn(first) & lib.VCUDA_TURN_GRANTED))

    await dying.kill()
    want(second, answer.descriptors[0], answer.slot)

    granted = lib.VCUDA_TURN_GRANTED
    assert await eventually(lambda: bool(turn(second) & granted and not turn(first) & granted))
    os.close(books)
    answer.close()


def memfd(pid: int) -> str:
    links = Path(f"/proc/{pid}/fd")
    return next(one.name for one in links.iterdir() if "vcuda-books" in str(one.readlink()))


async def test_a_later_manager_maps_the_same_files_and_grants_on(
    manage: Manage, manager: VirtualManager
) -> None:
    found = await folder(manager)
    answer = await say(manager.directory(NAME) / "vcuda.sock")
    assert answer is not None
    before = {path.name: path.stat().st_ino for path in found.iterdir()}
    await manager.stop()
    stopped = words(found).of[0].looked_ns

    await manage().open(NAME, [limit()])
    want(found, answer.descriptors[0], answer.slot)

    assert {path.name: path.stat().st_ino for path in found.iterdir()} == before
    assert await eventually(lambda: words(found).of[0].looked_ns > stopped)
    assert await eventually(lambda: bool(turn(found) & lib.VCUDA_TURN_GRANTED))
    answer.close()


@pytest.mark.parametrize("content", [b"", b"x" * 4096, bytes(ffi.sizeof("struct vcuda_turns"))])
async def test_words_of_another_layout_are_replaced(
    root: Path, manager: VirtualManager, content: bytes
) -> None:
    folder = root / "turns" / NAME
    folder.mkdir(parents=True)
    (folder / "words").write_bytes(content)
    (folder / "ring").write_text("no pipe")

    await manager.open(NAME, [limit()])

    assert words(folder).magic == lib.VCUDA_TURNS_MAGIC
    assert stat.S_ISFIFO((folder / "ring").stat().st_mode)


async def test_after_a_reboot_the_files_are_made_again(
    manage: Manage, manager: VirtualManager
) -> None:
    found = await folder(manager)
    await manager.stop()
    for path in found.iterdir():
        path.unlink()

    again = await folder(manage())

    assert sorted(path.name for path in again.iterdir()) == ["ring", "words"]


async def test_the_files_of_an_allocation_go_with_it(root: Path, manager: VirtualManager) -> None:
    await folder(manager)
    (root / "turns" / "gone").mkdir()

    manager.remove_leftovers()
    assert [path.name for path in (root / "turns").iterdir()] == [NAME]
    await manager.close(NAME)

    assert list((root / "turns").iterdir()) == []
    assert not manager.directory(NAME).exists()


async def test_whole_gpus_take_no_turns_until_they_are_shared(manager: VirtualManager) -> None:
    await manager.open(NAME, [WHOLE])
    assert manager.turns(NAME) is None

    await manager.open(NAME, [limit()])

    assert manager.turns(NAME) is not None


async def test_root_of_a_user_namespace_may_read_the_mount_point(manager: VirtualManager) -> None:
    await folder(manager)

    mount = manager.directory(NAME) / CONTAINER_TURNS.name
    assert mount.stat().st_mode & 0o777 == 0o755


async def test_the_meter_of_a_container_that_lacks_the_mount_is_left_alone(
    manager: VirtualManager,
) -> None:
    bare, other = await folder(manager), await folder(manager, AllocationID("a2"))
    mount = manager.directory(NAME) / CONTAINER_TURNS.name
    mount.rmdir()
    first = await say(manager.directory(NAME) / "vcuda.sock")
    second = await say(manager.directory(AllocationID("a2")) / "vcuda.sock")
    assert first is not None
    assert second is not None
    books: Any = ffi.new("struct vcuda_books *")
    books.meters[0].charged_ns = 10**9
    meter = bytes(ffi.buffer(ffi.addressof(books.meters[0])))
    at = ffi.offsetof("struct vcuda_books", "meters")
    os.pwrite(first.descriptors[0], meter, at)

    manager.share_now(time.monotonic_ns(), {})
    want(other, second.descriptors[0], second.slot)

    assert await eventually(lambda: bool(turn(other) & lib.VCUDA_TURN_GRANTED))
    assert turn(bare) & lib.VCUDA_TURN_GRANTED == 0
    assert os.pread(first.descriptors[0], len(meter), at) == meter
    mount.mkdir()
    manager.share_now(time.monotonic_ns(), {})
    assert os.pread(first.descriptors[0], len(meter), at) != meter
    first.close()
    second.close()


async def test_hints_are_emptied_when_their_slot_is_given_to_another_process(
    manager: VirtualManager, start_process: StartProcess
) -> None:
    door = (await manager.open(NAME, [limit()])) / "vcuda.sock"
    process = await start_process(door)
    slot = (await process.answer())[1]
    books = os.open(f"/proc/{process.pid}/fd/{memfd(process.pid)}", os.O_RDWR)
    last = (lib.VCUDA_DEVICES - 1) * lib.VCUDA_SLOTS + slot
    for at in (slot, slot + 1, last):
        os.pwrite(books, b"\7" * HINT_BYTES, HINTS_OFFSET + at * HINT_BYTES)
    await process.kill()
    assert await eventually(lambda: not manager.usage(NAME).processes)

    answer = await say(door)

    assert answer is not None
    assert answer.slot == slot
    kept = [os.pread(books, 1, HINTS_OFFSET + at * HINT_BYTES) for at in (slot, slot + 1, last)]
    assert kept == [b"\0", b"\7", b"\0"]
    os.close(books)
    answer.close()


async def test_a_device_that_is_added_has_its_own_turn(manager: VirtualManager) -> None:
    found = await folder(manager)
    other = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a1")

    await manager.open(NAME, [limit(), replace(limit(), gpu=other)])

    assert words(found).device_count == 2


def test_seats_are_weights_and_ceilings_of_shared_gpus_alone(root: Path) -> None:
    turns = Turns(root)
    second = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a1")

    def seat(gpu: GpuUUID, cores: int, ceiling: int) -> Limit:
        return replace(limit(), gpu=gpu, cores=cores, ceiling=ceiling)

    assert turns.seats([seat(GPU, 30, 30), seat(second, 20, 100)]) == (
        (0, 0.3, 0.3),
        (1, 0.2, 1.0),
    )
    assert turns.seats([seat(second, 50, 40), seat(GPU, 100, 100), seat(GPU, 0, 0)]) == (
        (1, 0.5, 0.5),
        (0, 0.0, 0.0),
        (0, 0.0, 0.0),
    )


def test_a_share_of_a_gpu_too_many_is_refused_not_unlimited(root: Path) -> None:
    turns = Turns(root)
    gpus = [GpuUUID(f"GPU-00000000-0000-0000-0000-{one:012d}") for one in range(MAX_GPUS + 1)]
    turns.seats([replace(WHOLE, gpu=GPU), *(replace(limit(), gpu=gpu) for gpu in gpus[:-1])])

    with pytest.raises(GpuManagerError, match=f"{gpus[-1]}.*{MAX_GPUS} GPUs"):
        turns.seats([replace(limit(), gpu=gpus[-1])])
