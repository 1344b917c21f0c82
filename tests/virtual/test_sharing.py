"""Shares as the containers' pages say them: leases, changes, what a dead manager leaves."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB, Bytes
from gpumanager.virtual.manager import VirtualManager
from gpumanager.virtual.sharing import LEASE_NS, SLICE_US, SWITCH_US
from gpumanager.virtual.turns import Turns
from gpumanager.virtual.values import AllocationID, Limit
from tests.virtual.programs.hello_client import Regions, exchange, hello
from vcuda_shim._shim import ffi, lib

pytest_plugins = ["tests.virtual.virtual_fixtures"]

GPU = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0")
MS = 1_000_000
TICK = 100 * MS
SECOND = 1000 * MS


def limit(cores: int, ceiling: int = 0) -> Limit:
    return Limit(GPU, Bytes(GIB), cores, max(ceiling, cores))


class Node:
    """A manager whose time is given; this test is a process of every container."""

    def __init__(self, root: Path, turns: Turns | None = None) -> None:
        self.root = root
        self.manager = VirtualManager(root, turns=turns)
        self.now = 1000 * SECOND
        self.pages: dict[str, Regions] = {}

    async def open(self, name: str, *limits: Limit) -> None:
        directory = await self.manager.open(AllocationID(name), limits)
        if name not in self.pages:
            answer = await asyncio.to_thread(exchange, directory / "vcuda.sock", hello())
            assert answer is not None
            self.pages[name] = Regions.of(answer)
            answer.close()

    def limit(self, name: str) -> Any:
        return self.pages[name].config.limits[0]

    def meter(self, name: str) -> Any:
        return self.pages[name].books.meters[0]

    def use(self, name: str, share: float, *, waits: int = 0) -> None:
        """For the next tick."""
        meter = self.meter(name)
        meter.charged_ns += round(share * TICK)
        meter.retired_ns += round(share * TICK)
        meter.throttled += waits

    def tick(self, answers: UtilizationByGpu | None = None) -> None:
        self.now += TICK
        self.manager.share_now(self.now, answers or {})

    def poll(self) -> None:
        self.now += TICK // 4
        self.manager.poll_now(self.now)

    def rate(self, name: str, later: int = 0) -> int:
        """GPU time per time, in millionths, as the limiter reads it so much later."""
        address: Any = ffi.addressof(self.limit(name))
        return int(lib.limiter_terms(address, self.now + later).rate_ppm)


@pytest.fixture
async def node(root: Path) -> AsyncIterator[Node]:
    made = Node(root)
    yield made
    await made.manager.stop()


async def test_beside_turns_a_container_of_before_has_its_guarantee(root: Path) -> None:
    """Nobody knows what those that take turns leave it."""
    before = Node(root)
    await before.open("a", limit(30, ceiling=80))
    await before.manager.stop()
    node = Node(root, Turns(root / "turns"))
    node.pages = before.pages
    await node.open("a", limit(30, ceiling=80))

    node.tick()

    assert node.rate("a") == 300_000
    await node.manager.stop()


async def test_idle_share_is_lent_until_the_lease_ends(node: Node) -> None:
    await node.open("a", limit(30, ceiling=80))

    node.tick()

    assert node.limit("a").share_until == node.now + LEASE_NS
    assert node.rate("a") == 800_000
    assert node.rate("a", later=LEASE_NS) == 300_000


async def test_a_manager_that_works_renews_the_lease_before_it_ends(node: Node) -> None:
    await node.open("a", limit(30, ceiling=80))

    for _ in range(40):
        node.tick()
        assert node.rate("a", later=LEASE_NS - 1) == 800_000


LENT = 1_000_000 * SLICE_US // (SLICE_US + SWITCH_US) - 600_000
"""What is left beside 60 % when switches have taken what they are presumed to."""


async def test_what_is_lent_is_back_at_the_next_look(node: Node) -> None:
    await node.open("a", limit(30, ceiling=100))
    await node.open("b", limit(60))
    for _ in range(10):
        node.use("a", 1.0, waits=1)
        node.tick()
    assert node.rate("a") == 1_000_000

    node.use("a", 0.8, waits=1)
    node.use("b", 0.2)
    node.tick()

    assert node.rate("b") == 600_000
    assert LENT <= node.rate("a") < 400_000


async def test_what_is_lent_is_back_at_a_glance(node: Node) -> None:
    await node.open("a", limit(30, ceiling=100))
    await node.open("b", limit(60))
    for _ in range(10):
        node.use("a", 1.0, waits=1)
        node.tick()

    node.use("b", 0.1)
    node.poll()

    assert node.rate("b") == 600_000
    assert LENT <= node.rate("a") < 400_000
    assert node.limit("a").share_until == node.now + LEASE_NS


async def test_where_nothing_is_lent_a_glance_changes_nothing(node: Node) -> None:
    await node.open("a", limit(30, ceiling=100))
    await node.open("b", limit(60))
    node.tick()
    until = node.limit("a").share_until

    node.use("a", 0.5, waits=1)
    node.poll()

    assert node.limit("a").share_until == until


async def test_who_closes_is_glanced_at_no_more(node: Node) -> None:
    await node.open("a", limit(30, ceiling=100))
    await node.open("b", limit(60))
    for _ in range(3):
        node.use("a", 1.0, waits=1)
        node.tick()

    await node.manager.close(AllocationID("b"))
    node.use("a", 0.3, waits=1)
    node.poll()

    assert node.rate("a") == 1_000_000


async def test_containers_are_told_what_others_took(node: Node) -> None:
    await node.open("a", limit(30))
    await node.open("b", limit(60))
    for _ in range(10):
        node.use("a", 0.25)
        node.tick()

    assert node.limit("a").others_ppm == 0
    assert node.limit("b").others_ppm == 300_000  # idle itself: what they may begin to take


async def test_a_changed_limit_holds_at_once_and_after_the_next_look(node: Node) -> None:
    await node.open("a", limit(30, ceiling=80))
    node.tick()

    await node.open("a", limit(10))

    assert node.rate("a") == 100_000
    node.tick()
    assert node.rate("a") == node.rate("a", later=2 * LEASE_NS) == 100_000


async def test_looking_wakes_nobody_and_writes_no_file(node: Node) -> None:
    await node.open("a", limit(30, ceiling=80))
    generation = node.pages["a"].config.generation
    before = sorted((path.name, path.stat().st_ino) for path in node.root.rglob("*"))

    node.tick()

    assert node.pages["a"].config.generation == generation
    assert sorted((path.name, path.stat().st_ino) for path in node.root.rglob("*")) == before


async def test_whole_and_withdrawn_gpus_are_left_alone(node: Node) -> None:
    await node.open("a", limit(100))
    await node.open("b", limit(0))

    node.tick()

    assert node.limit("a").share_until == node.limit("b").share_until == 0


async def test_a_container_that_is_closed_is_looked_at_no_more(node: Node) -> None:
    await node.open("a", limit(30, ceiling=100))
    await node.open("b", limit(60))
    node.use("b", 0.6, waits=1)
    node.tick()

    await node.manager.close(AllocationID("b"))
    node.tick()

    assert node.rate("a") == 1_000_000


async def test_a_successor_takes_the_leases_over_and_until_then_the_promise_holds(
    node: Node,
) -> None:
    await node.open("a", limit(30, ceiling=80))
    node.tick()
    await node.manager.stop()
    assert node.rate("a") == 800_000

    node.manager = VirtualManager(node.root)
    await node.open("a", limit(30, ceiling=80))

    assert node.rate("a") == node.rate("a", later=10 * LEASE_NS) == 300_000
    node.tick()
    assert node.rate("a") == 800_000


async def test_who_uses_much_more_than_it_pays_for_is_reported_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await node.open("a", limit(30))
    await node.open("b", limit(30))
    for _ in range(400):
        node.use("b", 0.3, waits=1)
        sample = ProcessSample(os.getpid(), node.now + TICK, 60)
        node.tick({GPU: GpuUtilization(node.now + TICK, (sample,), 60)})

    assert caplog.text.count("more of its GPU 0 than its shim reports") == 1
    assert node.meter("a").charged_ns > 10 * TICK


async def test_an_instance_of_a_gpu_is_found_by_its_uuid(node: Node) -> None:
    await node.open("a", limit(30))
    stranger = GpuUUID(GPU.replace("GPU-", "MIG-"))
    for _ in range(400):
        sample = ProcessSample(1, node.now + TICK, 40)
        node.tick({stranger: GpuUtilization(node.now + TICK, (sample,))})

    assert node.limit("a").others_ppm == pytest.approx(400_000, rel=0.01)


async def test_usage_tells_how_often_launches_waited(node: Node) -> None:
    await node.open("a", limit(30))
    node.use("a", 0.3, waits=7)
    node.meter("a").throttled_ns += 5

    (device,) = node.manager.usage(AllocationID("a")).devices

    assert (device.throttled, device.throttled_ns) == (7, 5)


async def test_a_deeper_burst_reaches_the_page_and_is_read_again(node: Node) -> None:
    deep = Limit(GPU, Bytes(GIB), 30, 30, burst_us=250_000)
    await node.open("a", deep)

    assert node.limit("a").burst_us == 250_000
    assert node.manager.usage(AllocationID("a")).devices[0].limit == deep


async def test_meters_of_a_hostile_container_neither_end_the_sharing_nor_take_a_promise(
    node: Node,
) -> None:
    """Two words ended it for the whole node: a debt that does not fit into 63 bits."""
    await node.open("good", limit(60))
    await node.open("evil", limit(30))
    made_up, me = random.Random(7), os.getpid()
    words = [name for name, _ in ffi.typeof("struct vcuda_meter").fields]
    for _ in range(300):
        node.use("good", 0.6, waits=1)
        for name in words:
            value = made_up.choice([0, 1, 2**63, 2**64 - 1, 2**64 - 10**13, node.now])
            setattr(node.meter("evil"), name, value)
        samples = [
            ProcessSample(me, node.now + TICK, made_up.choice([0, 50, 100])),
            ProcessSample(1, node.now, 5),
        ]
        node.tick({GPU: GpuUtilization(node.now + TICK, tuple(samples), busy=100)})

        assert node.rate("good") >= 0.85 * 600_000
