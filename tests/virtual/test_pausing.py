"""Containers that do not hold to their limiters are stopped from outside, and go on in time."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from gpumanager.compute.overdraft import HELD_NS, SLACK_NS
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB, Bytes
from gpumanager.virtual.manager import VirtualManager
from gpumanager.virtual.pausing import MARK, Pausing, send
from gpumanager.virtual.processes import Process, find
from gpumanager.virtual.values import AllocationID, Limit
from tests.virtual.container_process import ContainerProcess, StartProcess, eventually

pytest_plugins = ["tests.virtual.virtual_fixtures"]

A, B = AllocationID("a"), AllocationID("b")
ONE, TWO, OTHER = Process(101, 1), Process(102, 1), Process(201, 1)
LIMIT = Limit(GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0"), Bytes(GIB), 30, 30)
TICK = 100_000_000


class Paused:
    """Pausing of processes that are only written down."""

    def __init__(self, root: Path, neighbours: Any = None) -> None:
        for name in (A, B):
            (root / name).mkdir(exist_ok=True)
        self.root = root
        self.sent: list[tuple[int, str]] = []
        self.processes: dict[AllocationID, list[Process]] = {A: [ONE], B: [OTHER]}
        self.pausing = Pausing(lambda name: root / name, neighbours, self._send)

    def _send(self, process: Process, number: signal.Signals) -> bool:
        self.sent.append((process.pid, number.name))
        return True

    def keep(
        self, held: Iterable[AllocationID], paused: Iterable[AllocationID]
    ) -> list[tuple[int, str]]:
        self.sent.clear()
        self.pausing.keep(frozenset(held), frozenset(paused), self.processes.__getitem__)
        return self.sent


def test_who_is_paused_is_stopped_and_nobody_else(tmp_path: Path) -> None:
    paused = Paused(tmp_path)

    assert paused.keep([A], []) == []
    assert paused.keep([A], [A]) == [(101, "SIGSTOP")]
    assert paused.keep([A], []) == [(101, "SIGCONT")]
    assert paused.keep([A], []) == []


def test_who_was_continued_by_somebody_or_is_new_is_stopped_at_the_next_look(
    tmp_path: Path,
) -> None:
    paused = Paused(tmp_path)
    paused.keep([A], [A])
    paused.processes[A] = [ONE, TWO]

    assert paused.keep([A], [A]) == [(101, "SIGSTOP"), (102, "SIGSTOP")]
    assert sorted(paused.keep([A], [])) == [(101, "SIGCONT"), (102, "SIGCONT")]


def test_it_stands_in_the_directory_as_long_as_a_container_may_be_stopped(tmp_path: Path) -> None:
    paused = Paused(tmp_path)

    paused.keep([A], [A])
    assert (tmp_path / A / MARK).exists()
    paused.keep([A], [])
    assert (tmp_path / A / MARK).exists()
    assert paused.keep([], []) == [(101, "SIGCONT")]
    assert not (tmp_path / A / MARK).exists()


def test_nobody_is_paused_whom_the_next_manager_would_not_continue(tmp_path: Path) -> None:
    """A full disk, or one that cannot be written."""
    paused = Paused(tmp_path)
    (tmp_path / A).rmdir()

    assert paused.keep([A], [A]) == []


def test_the_next_manager_continues_whom_the_last_has_stopped(tmp_path: Path) -> None:
    Paused(tmp_path).keep([A], [A])
    after = Paused(tmp_path)

    after.pausing.resume(A, [ONE])
    after.pausing.resume(B, [OTHER])

    assert after.sent == [(101, "SIGCONT")]
    assert not (tmp_path / A / MARK).exists()


async def test_all_processes_of_the_container_are_stopped(
    tmp_path: Path, start_process: StartProcess, sockets: VirtualManager
) -> None:
    """One that uses no GPU could continue the others."""
    door = await sockets.open(A, [LIMIT]) / "vcuda.sock"
    user, beside = await start_process(door), await start_process(door)

    class Neighbours:
        def beside(self, process: Process) -> tuple[int, ...]:
            return (process.pid, beside.pid)

    paused = Paused(tmp_path, Neighbours())
    found = find(user.pid)
    assert found is not None
    paused.processes[A] = [found]

    sent = paused.keep([A], [A])

    assert sorted(sent) == sorted([(user.pid, "SIGSTOP"), (beside.pid, "SIGSTOP")])


def test_a_pid_that_means_another_process_by_now_is_left_alone() -> None:
    assert not send(Process(os.getpid(), 1), signal.SIGCONT)


class Cheat:
    """A container of 30 % that charges half of the time, and its manager, whose time is given."""

    def __init__(self, manager: VirtualManager, process: ContainerProcess) -> None:
        self.manager, self.process = manager, process
        self.now = 1000 * TICK
        served = manager._served[A]
        self.meter = served._books.words.meters[0]

    @classmethod
    async def begin(cls, manager: VirtualManager, start: StartProcess) -> Self:
        process = await start(await manager.open(A, [LIMIT]) / "vcuda.sock")
        await process.answer()
        return cls(manager, process)

    @property
    def state(self) -> str:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0]

    async def is_stopped(self) -> bool:
        return await eventually(lambda: self.state == "T")

    async def goes_on(self) -> bool:
        return await eventually(lambda: self.state != "T")

    def look(self, share: float) -> None:
        self.meter.charged_ns += round(share * TICK)
        self.meter.retired_ns = self.meter.charged_ns
        self.now += TICK
        self.manager.share_now(self.now, {})

    def cheat(self) -> None:
        """Until it is sure."""
        for _ in range((SLACK_NS + HELD_NS) * 10 // TICK):
            self.look(0.5)


async def test_it_is_stopped_until_it_has_waited_for_what_it_took(
    root: Path, start_process: StartProcess
) -> None:
    manager = VirtualManager(root, pauses=True)
    cheat = await Cheat.begin(manager, start_process)

    cheat.cheat()
    assert await cheat.is_stopped()
    for _ in range(100):
        cheat.look(0.0)
    assert await cheat.goes_on()
    for _ in range(6):
        cheat.look(0.5)
    assert await cheat.is_stopped()
    await manager.stop()
    assert await cheat.goes_on()


async def test_a_manager_that_has_crashed_leaves_nobody_stopped_for_the_next(
    root: Path, start_process: StartProcess
) -> None:
    before, after = VirtualManager(root, pauses=True), VirtualManager(root)
    cheat = await Cheat.begin(before, start_process)
    cheat.cheat()
    assert await cheat.is_stopped()

    await after.open(A, [LIMIT])

    assert await cheat.goes_on()
    await after.stop()
    await before.stop()


async def test_without_the_policy_nobody_is_paused(root: Path, start_process: StartProcess) -> None:
    manager = VirtualManager(root)
    cheat = await Cheat.begin(manager, start_process)

    cheat.cheat()

    assert await cheat.goes_on()
    await manager.stop()
