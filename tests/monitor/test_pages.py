"""The pages as they are asked for: one sampler, one rendering, honest probes, an unhurried port."""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.gpu.usage.samples import ProcessSample
from gpumanager.monitor import pages, service
from gpumanager.monitor.metrics.journal_timing import JournalWrites
from gpumanager.monitor.metrics.latency import Latencies
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import render
from gpumanager.monitor.service import Monitor, Serving
from gpumanager.monitor.unlimited.auditor import Auditor
from gpumanager.units import GIB, MIB, Bytes
from tests.monitor.monitor_world import (
    EVERYTHING,
    FIRST,
    World,
    claimant,
    member,
    share,
    usage,
    whole,
)
from tests.waiting import until

ONE = share(claimant())


class Watch:
    """A monitor over a world, without a port of its own."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.reason = ""
        self.latencies = Latencies()
        self.monitor = Monitor(
            Serving(version="1.0", **settings),
            world.sources(),
            NvmlService(world, apart_seconds=0),
            latencies=self.latencies,
            writes=JournalWrites,
            not_ready=lambda: self.reason,
            auditor=Auditor(),
        )
        self.pages = self.monitor.pages

    async def text(self, path: str) -> str:
        return str((await self._answer(path)).body.decode())

    async def status(self, path: str) -> int:
        return int((await self._answer(path)).status)

    async def _answer(self, path: str) -> Any:
        return await self.pages.handlers()[path](make_mocked_request("GET", path))


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    watch = Watch(World([ONE], [usage(ONE, {7: 300 * MIB})]))
    yield watch
    await watch.monitor.close()


async def test_before_the_first_look_there_is_nothing_to_tell(watch: Watch) -> None:
    for path in ("/metrics", "/metric", "/usage", "/graph"):
        assert await watch.status(path) == 503
    assert await watch.status("/version") == await watch.status("/healthz") == 200


async def test_however_often_it_is_asked_there_is_one_look_and_one_rendering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(World([ONE]), period=1e6)
    rendered: list[object] = []

    def counted(page: Page) -> bytes:
        rendered.append(page)
        return render(page)

    monkeypatch.setattr(pages, "render", counted)
    await watch.monitor.sampler.sample(None)

    texts = await asyncio.gather(*(watch.text("/metrics") for _ in range(50)))

    assert (watch.world.looks, len(rendered), len(set(texts))) == (1, 1, 1)
    await watch.monitor.close()


async def test_gpu_manager_s_path_has_its_metrics_and_ours_the_others(watch: Watch) -> None:
    await watch.monitor.sampler.sample(EVERYTHING)

    ours, kept = await watch.text("/metrics"), await watch.text("/metric")

    assert "\ncontainer_gpu_utilization{" in kept
    assert "\ncontainer_gpu_utilization{" not in ours
    assert "gpumanager_" in ours
    assert "gpumanager_" not in kept


async def test_the_next_look_is_told_anew(watch: Watch) -> None:
    await watch.monitor.sampler.sample(EVERYTHING)
    before = await watch.text("/metrics")
    watch.world.promises = ()

    await watch.monitor.sampler.sample(EVERYTHING)

    assert 'pod="pod"' in before
    assert 'pod="pod"' not in await watch.text("/metrics")


async def test_not_ready_says_why(watch: Watch) -> None:
    watch.reason = "the journal is not loaded yet"

    assert await watch.status("/readyz") == 503
    assert await watch.text("/readyz") == "the journal is not loaded yet\n"
    assert await watch.status("/healthz") == 200
    watch.reason = ""
    assert await watch.status("/readyz") == 200


async def test_usage_is_the_originals_json(watch: Watch) -> None:
    watch.world.status = {FIRST.uuid: GpuStatus(Bytes(GIB))}
    watch.world.promises = [ONE, share(claimant("idle"), "a2", cores=10, blocks=1, first=50)]
    await watch.monitor.sampler.sample(EVERYTHING)

    document = json.loads(await watch.text("/usage"))
    watch.world.promises = ()
    await watch.monitor.sampler.sample(EVERYTHING)
    assert json.loads(await watch.text("/usage")) == {}

    device = {"id": FIRST.bus_id, "card_idx": "0", "device_mem": 16 * 1024}
    assert document == {
        "usage": {
            "uid-pod": {
                "stat": {"main": {"dev": [device]}},
                "project": "team",
                "spec": {"main": {"gpu": 0.3, "mem": 1024}},
            },
            "uid-idle": {
                "stat": {"main": {"dev": [device]}},
                "project": "team",
                "spec": {"main": {"gpu": 0.1, "mem": 256}},
            },
        }
    }


async def test_the_graph_shows_what_is_left_of_each_gpu(watch: Watch) -> None:
    watch.world.promises = [ONE]
    watch.world.status = {FIRST.uuid: GpuStatus(Bytes(3 * GIB))}
    await watch.monitor.sampler.sample(EVERYTHING)

    text = json.loads(await watch.text("/graph"))["graph"]

    used, total, free = 3 * GIB, 16 * GIB, 15 * GIB
    leaf = (
        "(pids: [], usedMemory: {}, totalMemory: {}, allocatableCores: {}, allocatableMemory: {})"
    )
    both = leaf.format(used, 2 * total, 170, free + total).replace("(", "(aval: 1, ")
    assert text.splitlines() == [
        "ROOT:1",
        f"|---PHB {both}",
        f"|   |---GPU0 {leaf.format(used, total, 70, free)}",
        f"|   |---GPU1 {leaf.format(0, total, 100, total)}",
    ]


async def test_a_driver_that_fails_takes_only_its_own_series_away(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    watch.world.broken = NvmlError("the driver is being replaced")
    for _ in range(3):
        await watch.monitor.sampler.sample(EVERYTHING)

    text = await watch.text("/metrics")

    assert "gpumanager_driver_up 0.0" in text
    assert "gpumanager_container_memory_used_bytes{" in text
    assert "gpumanager_gpu_memory_used_bytes{" not in text
    assert caplog.text.count("being replaced") == 1


async def test_a_look_that_fails_is_said_once_and_the_sampler_goes_on(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[object] = []

    async def then(snapshot: object) -> None:
        seen.append(snapshot)
        if len(seen) < 4:
            raise ZeroDivisionError

    task = asyncio.create_task(watch.monitor.sampler.sample_every(0.001, then, lambda: False))
    await until(lambda: len(seen) >= 6)
    task.cancel()

    assert caplog.text.count("sampling this node failed") == 1


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one


async def test_a_port_that_is_taken_is_had_once_it_is_free(
    taken: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.01)
    port = taken.getsockname()[1]
    watch = Watch(World(), address="127.0.0.1", port=port)
    running = asyncio.create_task(watch.monitor.run())
    await until(lambda: "trying again" in caplog.text)
    await until(lambda: watch.monitor.sampler.snapshot)  # everything else goes on
    taken.close()
    assert await watch.monitor.listening == port
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

    assert caplog.text.count("trying again") == 1


async def test_without_a_port_nothing_listens_and_the_sampler_looks() -> None:
    watch = Watch(World(), port=None)
    running = asyncio.create_task(watch.monitor.run())
    await until(lambda: watch.monitor.sampler.snapshot)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

    assert not watch.monitor.listening.done()


async def test_utilisation_of_a_share_and_of_a_whole_gpu_reaches_the_page(watch: Watch) -> None:
    sampler = watch.monitor.sampler
    mine = os.getpid()
    watch.world.members = {mine: member(claimant())}
    watch.world.held = {FIRST.uuid: {mine: Bytes(GIB)}}
    now = time.monotonic_ns()
    watch.world.samples = [ProcessSample(mine, now, 42)]

    (share_view,) = (await sampler.sample(EVERYTHING)).containers
    watch.world.promises, watch.world.usages = [whole(claimant("big"), gpus=[FIRST])], []
    watch.world.status = {FIRST.uuid: GpuStatus(Bytes(GIB), percent=37)}
    (view,) = (await sampler.sample(EVERYTHING)).containers

    assert (share_view.devices[0].pids, share_view.devices[0].percent) == ((mine,), 42)
    assert (view.devices[0].measured, view.devices[0].percent) == (GIB, 37)
