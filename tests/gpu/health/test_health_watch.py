"""The watch: what its thread is told becomes what is advertised, whatever NVML does meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.health import prober
from gpumanager.gpu.health.prober import ProbeTiming
from gpumanager.gpu.health.reports import NodeCondition, NodeEvent
from gpumanager.gpu.health.state import NvmlState, RecoveryPolicy
from gpumanager.gpu.health.watch import HealthRules, HealthWatch
from gpumanager.gpu.health.xids import checks_of
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.values import GpuUUID
from tests.gpu.health.health_worlds import ToldWorld
from tests.waiting import until

BOUND = 120.0
"""Seconds after which a test is stuck."""

EAGER = ProbeTiming(probe=0.01, wait=0.01, retry=0.01, silent=0.3, look=0.01, longest=0.01)
QUICK = RecoveryPolicy(probes=2, transient=0.0, fatal=0.0)
STAYS = RecoveryPolicy(transient=1e9, fatal=1e9, longest=1e9)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "LEAST_PAUSE", 0.0)


class Told:
    """Whom the watch tells: the kubelet's side and the cluster's."""

    def __init__(self) -> None:
        self.unhealthy_sets: list[frozenset[GpuUUID]] = []
        self.welcomed: list[frozenset[GpuUUID]] = []
        self.failures = 0
        self.failure: GpuManagerError = NvmlError("not yet")
        self.conditions: list[NodeCondition] = []
        self.events: list[NodeEvent] = []

    async def unhealthy(self, gpus: frozenset[GpuUUID]) -> None:
        self.unhealthy_sets.append(gpus)

    async def appeared(self, gpus: frozenset[GpuUUID]) -> None:
        if self.failures:
            self.failures -= 1
            raise self.failure
        self.welcomed.append(gpus)

    def condition(self, condition: NodeCondition) -> None:
        self.conditions.append(condition)

    def event(self, event: NodeEvent) -> None:
        self.events.append(event)

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]


@asynccontextmanager
async def watching(
    world: ToldWorld,
    told: Told,
    *,
    patience: RecoveryPolicy = STAYS,
    gpus: tuple[GpuUUID, ...] | None = None,
) -> AsyncIterator[HealthWatch]:
    rules = HealthRules(patience=patience, timing=EAGER)
    known = world.gpus if gpus is None else gpus
    watch = HealthWatch(known, world.source, rules=rules, reports=told)
    task = asyncio.create_task(watch.watch(told))
    try:
        await until(lambda: watch.health.nvml is not NvmlState.UNKNOWN)
        yield watch
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=BOUND)
        assert task.cancelled()


async def test_only_the_gpu_that_an_event_is_about_goes_out_of_use() -> None:
    world, told = ToldWorld(), Told()
    async with watching(world, told) as watch:
        await until(lambda: watch.health.events)

        world.xid(world.gpus[1], 79)
        await until(lambda: bool(told.unhealthy_sets))

    assert told.unhealthy_sets == [frozenset({world.gpus[1]})]
    assert told.reasons == ["GpuXid"]
    assert [one.status for one in told.conditions] == [True, False]


async def test_a_gpu_that_is_good_again_is_back_in_use() -> None:
    world, told = ToldWorld(), Told()
    async with watching(world, told, patience=QUICK):
        world.lose(world.gpus[0])
        await until(lambda: bool(told.unhealthy_sets))
        world.restore(world.gpus[0])
        await until(lambda: len(told.unhealthy_sets) > 1)

    assert told.unhealthy_sets == [frozenset({world.gpus[0]}), frozenset()]
    assert told.reasons == ["GpuLost", "GpuRecovered"]
    assert [one.status for one in told.conditions] == [True, False, True]


async def test_a_question_that_hangs_harms_the_gpu_it_is_about_and_no_other() -> None:
    world, told = ToldWorld(), Told()
    async with watching(world, told, patience=QUICK):
        world.source.hangs.add(world.gpus[0])
        await until(lambda: bool(told.unhealthy_sets))
        assert told.unhealthy_sets == [frozenset({world.gpus[0]})]
        assert told.reasons == ["GpuSilent"]

        world.source.hangs.clear()
        world.source.change()
        await until(lambda: len(told.unhealthy_sets) > 1)

    assert told.unhealthy_sets[1:] == [frozenset()]


async def test_a_library_that_hangs_harms_no_gpu_and_is_told_as_not_known() -> None:
    world, told = ToldWorld(), Told()
    async with watching(world, told) as watch:
        world.source.hangs.add(None)
        await until(lambda: watch.health.nvml is NvmlState.SILENT)
        world.source.hangs.clear()
        world.source.change()
        await until(lambda: watch.health.nvml is NvmlState.ANSWERS)
        world.source.hangs.update({None, *world.gpus})  # the watch ends all the same

    world.source.hangs.clear()
    world.source.change()
    await until(lambda: world.source.closed)
    assert told.unhealthy_sets == []
    assert told.reasons == ["NvmlUnavailable", "NvmlAvailable"]
    assert [one.status for one in told.conditions] == [True, None, True]


async def test_a_driver_that_is_reloaded_harms_no_gpu() -> None:
    world, told = ToldWorld(), Told()
    async with watching(world, told) as watch:
        world.unload()
        await until(lambda: watch.health.nvml is NvmlState.FAILS)
        assert "kernel module" in watch.health.problem
        world.load()
        await until(lambda: watch.health.nvml is NvmlState.ANSWERS)

    assert told.unhealthy_sets == []


async def test_a_mistake_of_ours_is_told_and_the_gpus_are_watched_on() -> None:
    world, told = ToldWorld(), Told()
    async with watching(world, told) as watch:
        world.source.mistake = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "garbage for a UUID")
        await until(lambda: watch.health.nvml is NvmlState.FAILS)
        assert "garbage for a UUID" in watch.health.problem
        world.source.mistake = None
        world.lose(world.gpus[0])
        await until(lambda: bool(told.unhealthy_sets))

    assert told.reasons[0] == "NvmlUnavailable"


@pytest.mark.parametrize("failure", [NvmlError("not yet"), GpuManagerError("two of one name")])
async def test_a_gpu_that_appears_is_welcomed_once_and_again_after_a_failure(
    failure: GpuManagerError,
) -> None:
    world, told = ToldWorld(3), Told()
    told.failures, told.failure = 2, failure
    async with watching(world, told, gpus=world.gpus[:1]) as watch:
        await until(lambda: bool(told.welcomed))
        rounds = watch.health
        world.xid(world.gpus[2], 13)
        await until(lambda: watch.health != rounds)

    assert told.welcomed == [frozenset(world.gpus[1:])]
    assert told.failures == 0


async def test_a_gpu_that_containers_hold_and_that_is_missing_is_out_of_use_from_the_start() -> (
    None
):
    world, told = ToldWorld(), Told()
    gone = GpuUUID("GPU-gone")
    watch = HealthWatch(
        world.gpus, world.source, rules=HealthRules(timing=EAGER), reports=told, held=[gone]
    )
    task = asyncio.create_task(watch.watch(told))
    await until(lambda: bool(told.unhealthy_sets))
    task.cancel()

    assert told.unhealthy_sets == [frozenset({gone})]
    assert told.welcomed == []


async def test_nvml_is_opened_anew_now_and_then_while_a_gpu_is_missing() -> None:
    world, told = ToldWorld(), Told()
    world.unplug(world.gpus[0])
    world.source.reopen()
    async with watching(world, told, patience=QUICK, gpus=world.gpus[1:]):
        world.restore(world.gpus[0])
        assert world.source.gpus() == world.gpus[1:]
        world.lose(world.gpus[1])
        await until(lambda: bool(told.welcomed))

    assert told.welcomed == [frozenset({world.gpus[0]})]


async def test_disabled_checks_ask_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world, told = ToldWorld(), Told()
    rules = HealthRules(checks=checks_of({"DP_DISABLE_HEALTHCHECKS": "all"}), timing=EAGER)
    caplog.set_level("INFO")

    await HealthWatch(world.gpus, world.source, rules=rules, reports=told).watch(told)

    assert "disabled" in caplog.text
    assert not world.source.tells_events()


async def test_without_probes_only_what_an_enabled_event_harmed_is_probed() -> None:
    world, told = ToldWorld(), Told()
    environment = {"DP_DISABLE_HEALTHCHECKS": "all", "DP_ENABLE_HEALTHCHECKS": "79"}
    rules = HealthRules(checks_of(environment), QUICK, EAGER)
    watch = HealthWatch(world.gpus, world.source, rules=rules, reports=told)
    task = asyncio.create_task(watch.watch(told))
    await until(lambda: watch.health.events)

    world.remap(world.gpus[0], pending=False, failed=True)
    world.xid(world.gpus[1], 48)
    world.xid(world.gpus[1], 79)
    await until(lambda: len(told.unhealthy_sets) > 1)
    task.cancel()

    assert told.unhealthy_sets == [frozenset({world.gpus[1]}), frozenset()]
