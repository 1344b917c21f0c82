"""Waiting and waking by the virtual clock: the world that shim and arbiter live in."""

import subprocess
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from virtual_clock import VirtualClock, virtual_clock

from tests import ROOT
from tests.sim.test_virtual_clock import LOOK, MS, SECOND, Scene
from vcuda_shim._sim import ffi

WAKE = 20_000


@pytest.fixture(scope="module")
def waiter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("world") / "clock_waiter"
    source = Path(__file__).with_name("clock_waiter.c")
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/native/include"]
    subprocess.run([*command, "-o", target, source, "-ldl"], check=True, timeout=300)
    return target


@asynccontextmanager
async def waiting(folder: Path, waiter: Path, *programs: str) -> AsyncIterator[Scene]:
    """Programs that wait for one word, and that wake who waits."""
    word = folder / "word"
    word.write_bytes(bytes(4096))
    with virtual_clock(folder / "clock") as clock:
        scene = Scene(clock, folder, waiter)
        try:
            for program in programs:
                await scene.enter(str(waiter), str(word), *program.split())
            yield scene
        finally:
            scene.close()


async def play(scene: Scene) -> Sequence[tuple[str, int]]:
    said = [line.split() for line in await scene.play(10 * SECOND)]
    return [(name, int(time)) for name, time in said]


def set_wake(clock: VirtualClock, nanoseconds: int | None) -> int:
    if nanoseconds is not None:
        clock.set_wake(nanoseconds)
    return nanoseconds or WAKE


@pytest.mark.parametrize("wake_ns", [None, 50_000, MS])
async def test_a_waiter_goes_on_what_a_wake_costs_after_it(
    tmp_path: Path, waiter: Path, wake_ns: int | None
) -> None:
    async with waiting(tmp_path, waiter, f"wait {100 * MS}", f"wake {5 * MS}") as scene:
        cost = set_wake(scene.clock, wake_ns)

        said = dict(await play(scene))

    assert said == {"wake": 5 * MS + LOOK, "wait": 5 * MS + cost + LOOK}


async def test_a_waiter_that_nobody_wakes_sleeps_to_its_deadline(
    tmp_path: Path, waiter: Path
) -> None:
    async with waiting(tmp_path, waiter, f"wait {100 * MS}") as scene:
        assert await play(scene) == [("wait", 100 * MS + LOOK)]


async def test_a_wake_without_a_change_ends_no_wait(tmp_path: Path, waiter: Path) -> None:
    async with waiting(tmp_path, waiter, f"wait {100 * MS}", f"ring {5 * MS}") as scene:
        assert dict(await play(scene))["wait"] == 100 * MS + LOOK


async def test_a_wake_before_the_wait_is_not_lost_where_the_word_has_changed(
    tmp_path: Path, waiter: Path
) -> None:
    async with waiting(tmp_path, waiter, "wake 0", f"wait {100 * MS}") as scene:
        said = dict(await play(scene))

    assert said["wait"] < MS


async def test_runs_repeat_to_the_nanosecond(tmp_path: Path, waiter: Path) -> None:
    programs = [f"wait {100 * MS}", f"wait {100 * MS}", f"ring {3 * MS}", f"wake {5 * MS}"]
    said = []
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        async with waiting(tmp_path / run, waiter, *programs) as scene:
            said.append(await play(scene))

    assert said[0] == said[1]
    assert [name for name, _ in said[0]] == ["ring", "wake", "wait", "wait"]


async def test_a_thread_of_the_conductors_process_waits_and_is_woken(tmp_path: Path) -> None:
    with virtual_clock(tmp_path / "clock") as clock:
        world: Any = ffi.cast("struct vcuda_world *", clock.world())
        returns: list[int] = []

        def live() -> None:
            for deadline in (0, SECOND, 2 * SECOND):
                world.wait(ffi.NULL, 0, clock.now() + deadline)
                returns.append(clock.now())

        thread = threading.Thread(target=live)
        thread.start()
        await clock.line_up_threads()
        begun = clock.now()
        await clock.sleep_until(begun + 5 * MS)
        world.wake(ffi.NULL)
        await clock.sleep_until(begun + 10 * SECOND)
        thread.join()

    joined, woken, slept = returns
    assert joined < begun
    assert woken == begun + 5 * MS + WAKE
    assert slept == woken + 2 * SECOND


async def test_a_thread_can_be_joined_after_the_end_of_its_world(tmp_path: Path) -> None:
    with virtual_clock(tmp_path / "clock") as clock:
        world: Any = ffi.cast("struct vcuda_world *", clock.world())
        stopped = threading.Event()

        def live() -> None:
            while not stopped.is_set():
                world.wait(ffi.NULL, 0, clock.now() + SECOND)

        thread = threading.Thread(target=live)
        thread.start()
        await clock.line_up_threads()

        clock.end_world()
        stopped.set()
        thread.join(timeout=60)

        assert not thread.is_alive()
        assert len(clock.takers()) == 1
