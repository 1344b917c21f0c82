"""How often the monitor asks the driver: NVML takes locks that programs on the GPU wait for."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gpumanager.gpu.nvml_service import NvmlReader, NvmlService
from gpumanager.gpu.values import Bond, Level, topology
from gpumanager.grants.grant import Grant
from gpumanager.monitor import sampler as sampler_module
from gpumanager.monitor.sampler import Sampler
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.monitor.unlimited.audit import LOOKS_BEFORE_VERDICT, UnlimitedKind
from gpumanager.monitor.unlimited.auditor import Auditor
from tests.gpu.nvml_answers import answers
from tests.monitor.monitor_world import World, claimant, gpu, member, process, share, usage, whole

EIGHT = tuple(map(gpu, range(8)))
NODE = topology(EIGHT, [[None if a == b else Bond(Level.SYS) for a in range(8)] for b in range(8)])
SHARE = share(claimant())
WHOLE = whole(claimant("big"), gpus=EIGHT[1:4])
STATUS = (
    "DeviceGetMemoryInfo",
    "DeviceGetUtilizationRates",
    "DeviceGetTemperature",
    "DeviceGetPowerUsage",
)
PROCESSES = ("DeviceGetComputeRunningProcesses", "DeviceGetGraphicsRunningProcesses")
SAMPLES = "DeviceGetProcessUtilization"
MINUTE = 60


class Node:
    """Eight GPUs. asked: what NVML had to ask the driver for, and of which GPU.

    call_seconds: that each such call takes.
    """

    def __init__(self, patch: pytest.MonkeyPatch, promises: Sequence[Grant]) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()
        self.now = 1000.0
        self.call_seconds = 0.0
        self.pids: list[int] = []
        self.quiet = False
        patch.setattr(sampler_module, "find", process)
        functions = {name: self._function(name) for name in (*STATUS, *PROCESSES, SAMPLES)}
        answers(
            patch,
            DeviceGetCount=lambda: len(EIGHT),
            DeviceGetHandleByIndex=lambda index: EIGHT[index].uuid,
            DeviceGetMigMode=self._function("DeviceGetMigMode"),
            **functions,
        )
        self.auditor = Auditor(commands=lambda _: "train")
        self.world = world = World(
            promises, members={7: member("99999999-9a44-4e0b-8f57-0c2f9b1a6e21")}
        )
        nvml = NvmlService(apart_seconds=0, clock=lambda: self.now)
        reader = NvmlReader(nvml, "NVML does not answer", seconds=600)
        self.sampler = Sampler(
            world.sources(topology=lambda: NODE, quiet=lambda: self.quiet),
            reader,
            clock=lambda: self.now,
            unsure=lambda: self.auditor.unsure,
        )

    def _function(self, name: str) -> Any:
        def asked(handle: str, *_: object, **_version: object) -> Any:
            self.asked[name, int(handle[4:12])] += 1
            self.now += self.call_seconds
            if name == PROCESSES[0]:
                return [SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in self.pids]
            if name in (PROCESSES[1], SAMPLES):
                return []
            if name == "DeviceGetMigMode":
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return 40 if name in STATUS[2:] else SimpleNamespace(used=0, total=1, gpu=0)

        return asked

    async def saw(self, snapshot: Snapshot) -> None:
        await self.auditor.audit(snapshot)

    async def passes(
        self, seconds: int, *, scrape: int | None = None, page_open: bool = False
    ) -> None:
        """One look a second. scrape: seconds between two."""
        for second in range(seconds):
            await self.sampler.turn(self.saw, read=page_open)
            if scrape and second % scrape == 0:
                await asyncio.gather(*(self.sampler.refresh(self.saw) for _ in range(3)))
            self.now += 1

    @property
    def total(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (name, _), count in self.asked.items():
            found[name] += count
        return dict(found)


@pytest.mark.parametrize("promises", [[], [WHOLE]])
async def test_where_nothing_is_shared_and_nobody_reads_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, promises: list[Grant]
) -> None:
    node = Node(monkeypatch, promises)

    await node.passes(10 * MINUTE)

    assert not node.asked


async def test_where_nobody_reads_the_auditor_looks_at_shared_gpus_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, [SHARE, WHOLE])

    await node.passes(MINUTE)

    assert node.asked == {(name, 0): 12 for name in PROCESSES}


async def test_several_scrapes_at_a_time_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, [SHARE, WHOLE])

    await node.passes(MINUTE, scrape=15)

    listings = 12 + 4 + 7  # by the auditor, of the shared one, and once of each other
    assert node.total == {
        **dict.fromkeys(STATUS, 4 * 8),
        **dict.fromkeys(PROCESSES, listings),
        SAMPLES: 4,
    }
    assert {node.asked[name, index] for name in PROCESSES for index in range(1, 8)} == {1}


async def test_an_open_page_is_told_each_second_and_of_other_gpus_processes_each_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, [SHARE])

    await node.passes(2 * MINUTE, page_open=True)

    assert {node.asked[name, index] for name in STATUS[2:] for index in range(8)} == {120}
    assert {node.asked[name, 0] for name in PROCESSES} == {120}
    assert {node.asked[name, index] for name in PROCESSES for index in range(1, 8)} == {2}


async def test_a_slow_driver_is_asked_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch, [SHARE])
    node.call_seconds = 0.001  # one question of 36 calls takes 36 ms: once in 3.6 s is enough

    await node.passes(MINUTE, page_open=True)

    assert 15 <= node.asked["DeviceGetPowerUsage", 7] <= 17


async def test_what_was_found_is_looked_at_each_second_until_it_is_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, [SHARE])
    await node.passes(1)
    node.pids = [7]

    await node.passes(4 + LOOKS_BEFORE_VERDICT)
    assert node.auditor.tally.found[UnlimitedKind.STRANGER] == 1
    looked = node.asked[PROCESSES[0], 0]
    await node.passes(MINUTE)

    assert looked == 1 + LOOKS_BEFORE_VERDICT
    assert node.asked[PROCESSES[0], 0] == looked + 12


async def test_between_two_looks_a_scrape_does_not_shorten_the_time_of_a_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, [SHARE])
    shares: list[float] = []
    world = node.world

    async def saw(snapshot: Snapshot) -> None:
        shares.append(snapshot.containers[0].devices[0].share)

    for second in range(4):
        world.usages = [usage(SHARE, charged_ns=second * 300_000_000)]
        await node.sampler.turn(saw, read=False)
        node.now += 0.5
        world.usages = [usage(SHARE, charged_ns=second * 300_000_000 + 150_000_000)]
        await node.sampler.refresh(saw)
        node.now += 0.5

    assert shares[2:] == pytest.approx([30] * 6)


async def test_on_a_quiet_node_books_are_read_no_more_and_the_audit_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, [SHARE])
    node.world.usages = [usage(SHARE)]
    await node.passes(10)
    node.quiet = True
    read = node.world.read

    await node.passes(MINUTE)

    assert node.world.read <= read + 1
    assert node.asked[PROCESSES[0], 0] == 14
    node.pids = [7]
    await node.passes(10)
    assert node.auditor.tally.found[UnlimitedKind.STRANGER] == 1


async def test_after_a_quiet_hour_a_share_is_of_the_last_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(monkeypatch, [SHARE])
    node.world.usages = [usage(SHARE)]
    await node.passes(10)
    node.quiet = True
    await node.passes(60 * MINUTE)

    node.quiet = False
    node.world.usages = [usage(SHARE, charged_ns=300_000_000)]
    await node.passes(1)

    assert node.sampler.snapshot is not None
    assert node.sampler.snapshot.containers[0].devices[0].share == pytest.approx(30, abs=0.1)
