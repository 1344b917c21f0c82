"""GPU time outside of turns: the arbiter is told, and the container of its cgroup is charged."""

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from gpumanager.compute.audit import SECOND
from gpumanager.compute.foreign import LATELY_NS
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.ids import AllocationID
from gpumanager.limits import outside
from gpumanager.limits.pausing import Cgroup
from gpumanager.limits.processes import Process
from gpumanager.limits.turns import AllocationTurns
from gpumanager.sim.in_memory import SimulatedFreezer
from tests.limits.container_process import ContainerProcess, StartProcess, eventually
from tests.limits.metered_manager import Manage
from tests.limits.open_door import GPU, NAME, limit
from vcuda_shim._shim import ffi, lib

pytest_plugins = ["tests.limits.virtual_fixtures"]

OTHER = AllocationID("a2")
STRANGER = 2**22 + 1
"""No pid that the kernel gives."""


class Owners:
    """Knows the allocation of each pid that the test says."""

    def __init__(self) -> None:
        self.of: dict[int, AllocationID] = {}

    def owner(self, allocations: Collection[AllocationID], process: Process) -> AllocationID | None:
        owner = self.of.get(process.pid)
        return owner if owner in allocations else None


class Node:
    """Two containers of 30 % that take turns, with a process each; looks at them by a clock that
    is given."""

    def __init__(self, root: Path, manage: Manage) -> None:
        self.owners = Owners()
        self.root, self.manage = root, manage
        self.freezer = SimulatedFreezer()
        self.begin_again(pauses=True)
        self.now = time.monotonic_ns()

    def begin_again(self, *, pauses: bool) -> None:
        """With another manager, as after a crash."""
        self.manager = self.manage(owners=self.owners, pauses=pauses, freezer=self.freezer)

    async def container(self, name: AllocationID, start: StartProcess) -> ContainerProcess:
        process = await start(await self.manager.open(name, [limit()]) / "vcuda.sock")
        await process.answer()
        assert self.manager.turns(name) is not None
        self.freezer.containers[process.pid] = name, Cgroup(name)
        return process

    def look(self, seconds: float, **percents: int) -> None:
        """So much later, NVML names these, by `pid<number>`."""
        self.now += round(seconds * SECOND)
        samples = tuple(
            ProcessSample(int(pid.removeprefix("pid")), self.now, percent)
            for pid, percent in percents.items()
        )
        busy = min(100, sum(percents.values()))
        self.manager.share_now(self.now, {GPU: GpuUtilization(self.now, samples, busy)})

    async def is_shared(self, name: AllocationID, *, shared: bool) -> bool:
        """Whether the arbiter says that drains measure nothing."""

        def told() -> bool:
            words: Any = ffi.new("struct vcuda_turns *")
            ffi.buffer(words)[:] = (self.root / "turns" / name / "words").read_bytes()
            return bool(words.of[0].turn & lib.VCUDA_TURN_SHARED) is shared

        return await eventually(told)

    def turns(self, name: AllocationID) -> AllocationTurns:
        joined = self.manager._served[name].joined
        assert joined is not None
        return joined

    def charged(self, name: AllocationID) -> float:
        """Seconds."""
        return self.turns(name).charged(0) / SECOND


@pytest.fixture
def node(root: Path, manage: Manage) -> Node:
    return Node(root, manage)


async def test_a_foreign_process_makes_drains_measure_nothing_while_it_works(
    node: Node, start_process: StartProcess
) -> None:
    own = await node.container(NAME, start_process)

    node.look(0.5, **{f"pid{own.pid}": 90})
    assert await node.is_shared(NAME, shared=False)
    node.look(0.5, **{f"pid{own.pid}": 60, f"pid{os.getppid()}": 30})
    assert await node.is_shared(NAME, shared=True)
    node.look(LATELY_NS / SECOND - 0.1)
    assert await node.is_shared(NAME, shared=True)
    node.look(0.2)
    assert await node.is_shared(NAME, shared=False)


async def test_time_of_a_process_that_goes_past_its_shim_is_charged_to_its_container_alone(
    node: Node, start_process: StartProcess
) -> None:
    """In its own slot, and in a process that never asked for one: its cgroup tells whose it is."""
    cheat = await node.container(NAME, start_process)
    await node.container(OTHER, start_process)
    beside = os.getppid()
    node.owners.of[beside] = NAME

    for _ in range(20):
        node.look(0.5, **{f"pid{cheat.pid}": 40, f"pid{beside}": 40})

    assert 5 < node.charged(NAME) < 8
    assert node.charged(OTHER) == 0


def goes_past(node: Node, cheat: ContainerProcess, looks: int) -> tuple[float, int]:
    """As long as it runs. Returns for how many seconds it did, and how many looks it was frozen."""
    took, frozen = 0.0, 0
    for _ in range(looks):
        runs = Cgroup(NAME) not in node.freezer.frozen
        frozen += not runs
        took += 0.1 * runs
        node.look(0.1, **({f"pid{cheat.pid}": 100} if runs else {}))
    return took, frozen


async def test_a_container_that_goes_on_past_its_shim_is_frozen_in_turn(
    node: Node, start_process: StartProcess
) -> None:
    """It has 30 % as promised, and its neighbour is left alone; whoever ends or follows thaws."""
    cheat = await node.container(NAME, start_process)
    await node.container(OTHER, start_process)

    took, frozen = goes_past(node, cheat, 600)

    assert node.manager.usage(NAME).overdrawn
    assert not node.manager.usage(OTHER).overdrawn
    assert 0.3 * 60 < took < 0.6 * 60
    assert frozen > 240
    while not node.freezer.frozen:
        goes_past(node, cheat, 1)
    assert node.freezer.frozen == {Cgroup(NAME)}
    await node.manager.stop()
    assert node.freezer.frozen == set()


async def test_a_manager_that_has_crashed_leaves_nobody_frozen_and_without_the_policy_nobody_is(
    node: Node, start_process: StartProcess
) -> None:
    cheat = await node.container(NAME, start_process)
    while not node.freezer.frozen:
        goes_past(node, cheat, 1)

    node.begin_again(pauses=False)
    await node.container(NAME, start_process)

    assert node.freezer.frozen == set()
    assert goes_past(node, cheat, 200)[1] == 0
    assert node.manager.usage(NAME).overdrawn


async def test_time_of_a_process_of_no_container_is_nobodys(
    node: Node, start_process: StartProcess
) -> None:
    """A neighbour is not charged for what somebody else took, however short its programs are."""
    dying = await node.container(NAME, start_process)

    for look in range(40):
        if look == 20:
            await dying.kill()
        node.look(0.5, **{f"pid{STRANGER + look}": 100})

    assert node.charged(NAME) == 0


async def test_a_container_that_pays_for_what_it_takes_is_charged_nothing_more(
    node: Node, start_process: StartProcess
) -> None:
    own = await node.container(NAME, start_process)

    for _ in range(40):
        node.turns(NAME).charge(0, SECOND // 4)  # as its turns do
        node.look(0.5, **{f"pid{own.pid}": 50})

    assert node.charged(NAME) == pytest.approx(10)


@pytest.mark.parametrize("there", [True, False])
async def test_time_of_others_is_given_back_while_their_process_is_there(
    node: Node, start_process: StartProcess, *, there: bool
) -> None:
    """Else a container whose processes come and go would get the time back that they took."""
    own = await node.container(NAME, start_process)

    for look in range(40):
        node.turns(NAME).charge(0, SECOND // 2)  # as its turns do, by the clock
        other = os.getppid() if there else STRANGER + look
        node.look(0.5, **{f"pid{own.pid}": 50, f"pid{other}": 50})

    assert await node.is_shared(NAME, shared=there)
    if there:
        assert 9 < node.charged(NAME) < 13
    else:
        assert node.charged(NAME) == 20


async def test_only_so_many_processes_of_an_answer_are_looked_up(
    node: Node, start_process: StartProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await node.container(NAME, start_process)
    asked: list[int] = []

    def find(pid: int) -> Process:
        asked.append(pid)
        return Process(pid, 1)

    monkeypatch.setattr(outside, "find", find)
    node.look(0.5, **{f"pid{own.pid}": 50}, **{f"pid{STRANGER + one}": 1 for one in range(200)})

    assert len(asked) == outside.LOOKUPS
    assert own.pid not in asked
