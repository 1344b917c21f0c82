"""How a kubelet treats device plugins. Each kubelet runs these cases by importing them, with a
fixture `kubelet` of its own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from fake_plugin import FakePlugin
from kubelet_under_test import ALPHA, BETA, KubeletUnderTest, Outcome, Sketch, SketchedContainer

from gpumanager.kubelet import wire
from gpumanager.kubelet.checkpoint import DeviceHolder, read_checkpoint
from gpumanager.kubelet.pods import PodUID
from gpumanager.sim.kubelet.habits import Habits
from gpumanager.sim.pods import ContainerKind

IDS = {ALPHA: [f"a{n}" for n in range(10)], BETA: [f"b{n}" for n in range(6)]}
CHECKPOINT = "kubelet_internal_checkpoint"


class Stage:
    """A kubelet, and the plugins of both resources."""

    def __init__(self, kubelet: KubeletUnderTest) -> None:
        self.kubelet = kubelet
        self.alpha = FakePlugin(kubelet.directory, ALPHA, IDS[ALPHA])
        self.beta = FakePlugin(kubelet.directory, BETA, IDS[BETA])
        self.made: list[str] = []

    @property
    def habits(self) -> Habits:
        return self.kubelet.habits

    async def register(self, *plugins: FakePlugin) -> None:
        for plugin in plugins:
            await plugin.stop()
            await plugin.start()
            await plugin.register()
        await self.offers(**{one.resource.rpartition("-")[2]: len(one.ids) for one in plugins})

    async def offers(self, **amounts: int) -> None:
        """Until the node says that so many can be had."""
        for name, amount in amounts.items():
            resource = {"alpha": ALPHA, "beta": BETA}[name]
            await self.soon(lambda r=resource, n=amount: self._allocates(r, n))  # type: ignore[misc]

    async def _allocates(self, resource: str, amount: int) -> bool:
        return (await self.kubelet.capacity(resource))[1] == amount

    async def soon(self, holds: Callable[[], Any]) -> None:
        """Until it holds, in the time that the kubelet has for it."""
        async with asyncio.timeout(self.kubelet.seconds):
            while not await holds():  # noqa: ASYNC110 - nobody could set an event
                await asyncio.sleep(0.02)

    async def run(self, *sketches: Sketch) -> tuple[Outcome, ...]:
        outcomes = await self.kubelet.run(*sketches)
        self.made += [one.uid for one in outcomes]
        return outcomes

    async def delete(self, *uids: str) -> None:
        await self.kubelet.delete(*uids)
        self.made = [uid for uid in self.made if uid not in uids]

    def checkpoint(self, uid: str) -> tuple[DeviceHolder, ...]:
        holders = read_checkpoint(self.kubelet.directory / CHECKPOINT)
        return tuple(one for one in holders if one.pod_uid == uid)

    def checkpoint_text(self) -> dict[str, Any]:
        text = (self.kubelet.directory / CHECKPOINT).read_text()
        found: dict[str, Any] = json.loads(text)["Data"]
        return found

    async def listed(self, service: str = wire.SERVICE) -> dict[str, Any]:
        """Containers of PodResources by pod, as one who keeps to the rate is told them."""
        async with wire.dial(self.kubelet.resources) as channel:
            answer = await wire.PodResourcesClient(channel, 10).list(service)
        return {pod.name: {one.name: one for one in pod.containers} for pod in answer.pod_resources}


@pytest.fixture
async def stage(kubelet: KubeletUnderTest) -> AsyncIterator[Stage]:
    """Both plugins have registered; what the test makes goes with it."""
    stage = Stage(kubelet)
    async with AsyncExitStack() as last_first:
        for plugin in (stage.alpha, stage.beta):
            last_first.push_async_callback(plugin.stop)
        await stage.register(stage.alpha, stage.beta)
        yield stage
        await kubelet.delete(*stage.made)


def one(name: str, alpha: int = 2, beta: int = 0, **fields: Any) -> Sketch:
    """A pod of one container."""
    return Sketch(name, [container("main", alpha, beta, **fields)])


def container(name: str, alpha: int = 0, beta: int = 0, **fields: Any) -> SketchedContainer:
    asks = {key: value for key, value in ((ALPHA, alpha), (BETA, beta)) if value}
    return SketchedContainer(name, asks=asks, **fields)


def init(name: str, alpha: int) -> SketchedContainer:
    return container(name, alpha, kind=ContainerKind.INIT, ends=True)


async def test_a_plugin_is_asked_for_its_options_before_register_returns_or_never(
    stage: Stage,
) -> None:
    await stage.alpha.stop()
    stage.alpha.calls.clear()
    await stage.alpha.start()

    await stage.alpha.register()

    assert [call for call, _ in stage.alpha.calls] == ["options"] * stage.habits.dials_back


async def test_a_plugin_of_another_version_is_refused(stage: Stage) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="not supported by kubelet"):
        await stage.alpha.register(version="v1alpha")


async def test_a_resource_without_a_domain_is_refused(stage: Stage) -> None:
    wrong = FakePlugin(stage.kubelet.directory, "thing-gamma", ["x"])

    with pytest.raises(grpc.aio.AioRpcError, match="invalid"):
        await wrong.register()


async def test_unhealthy_devices_count_in_the_capacity_and_cannot_be_had(stage: Stage) -> None:
    stage.alpha.change({"a0", "a1"})

    await stage.offers(alpha=8)

    assert await stage.kubelet.capacity(ALPHA) == (10, 8)
    await stage.run(one("healthy", 8))
    assert set(stage.alpha.called("allocate")[0]) == set(IDS[ALPHA]) - {"a0", "a1"}


async def test_each_resource_is_asked_for_its_preference_which_is_what_it_gets(
    stage: Stage,
) -> None:
    stage.alpha.prefer = lambda free, _: ["a7", "a3"]

    (outcome,) = await stage.run(one("plain", 2, 1))

    assert outcome.reason == ""
    assert [set(ids) for ids in stage.alpha.called("preferred")] == [set(IDS[ALPHA])]
    assert [set(ids) for ids in stage.alpha.called("allocate")] == [{"a3", "a7"}]
    assert stage.alpha.must_include == [()]
    assert [len(ids) for ids in stage.beta.called("allocate")] == [1]


async def test_a_preference_that_names_nothing_free_is_replaced(stage: Stage) -> None:
    stage.alpha.prefer = lambda free, _: ["nonsense"]

    await stage.run(one("plain", 2))

    (ids,) = stage.alpha.called("allocate")
    assert len(ids) == 2
    assert set(ids) < set(IDS[ALPHA])


async def test_whoever_is_admitted_is_listed_with_uid_and_spec_before_the_plugin_is_called(
    stage: Stage,
) -> None:
    seen: list[Any] = []

    async def look() -> None:
        seen.extend(pod for pod in await stage.kubelet.pods.pods() if pod.name == "listed")

    stage.alpha.during_allocate = look
    (outcome,) = await stage.run(one("listed", 2))

    assert [pod.uid for pod in seen] == [outcome.uid]
    assert [found.name for found in seen[0].containers] == ["main"]


async def test_admissions_come_one_after_another(stage: Stage) -> None:
    async def linger() -> None:
        await asyncio.sleep(0.05)

    stage.alpha.during_allocate = stage.beta.during_allocate = linger
    outcomes = await stage.run(*(one(f"crowd-{n}", 1, 1) for n in range(5)))

    assert [outcome.reason for outcome in outcomes] == [""] * 5
    assert len(stage.alpha.called("allocate")) == len(stage.beta.called("allocate")) == 5
    assert (stage.alpha.at_once, stage.beta.at_once) == (1, 1)


async def test_the_checkpoint_says_whose_the_devices_are_when_a_container_starts(
    stage: Stage,
) -> None:
    (outcome,) = await stage.run(one("booked", 2, 1))

    held = {row.resource: row for row in stage.checkpoint(outcome.uid)}
    assert {row.container for row in held.values()} == {"main"}
    assert held[ALPHA].ids == set(stage.alpha.called("allocate")[0])
    assert held[BETA].ids == set(stage.beta.called("allocate")[0])
    assert [set(ids) for ids in stage.alpha.called("pre_start")] == [held[ALPHA].ids]
    assert [set(ids) for ids in stage.beta.called("pre_start")] == [held[BETA].ids]


async def test_the_checkpoint_is_there_before_any_allocation(stage: Stage) -> None:
    registered = stage.checkpoint_text()["RegisteredDevices"]

    assert set(registered[ALPHA]) == set(IDS[ALPHA])


async def test_the_checkpoint_goes_by_numa_node(stage: Stage) -> None:
    stage.beta.nodes = (0,)
    await stage.register(stage.beta)
    (outcome,) = await stage.run(one("aligned", 2, 1))

    rows = stage.checkpoint_text()["PodDeviceEntries"]
    nodes = {
        row["ResourceName"]: set(row["DeviceIDs"]) for row in rows if row["PodUID"] == outcome.uid
    }
    assert nodes == {ALPHA: {str(stage.habits.node_of_none)}, BETA: {"0"}}


async def test_an_init_containers_devices_are_given_again_without_asking(stage: Stage) -> None:
    sketch = Sketch(
        "steps", [init("init", 2), container("first", 2, ends=True), container("second", 3)]
    )
    await stage.run(sketch)

    allocated = [set(ids) for ids in stage.alpha.called("allocate")]
    assert allocated[0] == allocated[1]
    assert not allocated[1] & allocated[2]
    assert len(stage.alpha.called("preferred")) == 2


async def test_a_larger_container_has_to_include_what_its_init_container_had(stage: Stage) -> None:
    await stage.run(Sketch("grows", [init("init", 2), container("main", 5)]))

    first, second = (set(ids) for ids in stage.alpha.called("allocate"))
    assert [set(ids) for ids in stage.alpha.must_include] == [set(), first]
    assert first < second


async def test_a_sidecars_devices_stay_its_own(stage: Stage) -> None:
    if not stage.habits.sidecars:
        pytest.skip(f"kubelet {stage.habits.version} has no sidecars")
    sidecar = container("side", 2, kind=ContainerKind.SIDECAR)

    await stage.run(Sketch("beside", [sidecar, container("main", 2)]))

    first, second = (set(ids) for ids in stage.alpha.called("allocate"))
    assert not first & second
    assert set((await stage.listed())["beside"]) == {"side", "main"}


async def test_a_plugins_refusal_fails_the_pod_with_its_text(stage: Stage) -> None:
    stage.alpha.refuse = {"allocate": "no free GPU: all are taken"}

    (outcome,) = await stage.run(one("refused", 2))

    assert outcome.reason == "UnexpectedAdmissionError"
    assert "no free GPU: all are taken" in outcome.message
    stage.alpha.refuse = {}
    (after,) = await stage.run(one("next", 10))
    assert after.reason == ""


async def test_more_than_there_is_is_refused_before_the_plugin_is_asked(stage: Stage) -> None:
    (outcome,) = await stage.run(one("large", 11))

    assert outcome.reason == "UnexpectedAdmissionError"
    assert f"unavailable for {ALPHA}. Requested: 11, Available: 10" in outcome.message
    assert stage.alpha.called("preferred") == stage.alpha.called("allocate") == []


async def test_a_start_that_fails_is_tried_again(stage: Stage) -> None:
    stage.alpha.refuse, stage.alpha.refuse_times = {"pre_start": "not yet"}, 1

    (outcome,) = await stage.run(one("patient", 2))

    assert outcome.reason == ""
    assert len(stage.alpha.called("pre_start")) >= 2
    assert len(stage.alpha.called("allocate")) == 1


async def test_a_container_that_starts_again_is_only_told_so(stage: Stage) -> None:
    await stage.run(one("again", 2, starts=2))

    told = [set(ids) for ids in stage.alpha.called("pre_start")]
    assert told == [set(stage.alpha.called("allocate")[0])] * 2
    assert len(stage.alpha.called("preferred")) == 1


async def test_devices_of_a_deleted_pod_can_be_had_again_and_nobody_says_so(stage: Stage) -> None:
    (outcome,) = await stage.run(one("first", 10))
    calls = len(stage.alpha.calls)

    await stage.delete(outcome.uid)
    assert len(stage.alpha.calls) == calls

    (after,) = await stage.run(one("second", 10))
    assert after.reason == ""


async def test_pod_resources_say_who_holds_what(stage: Stage) -> None:
    stage.beta.nodes = (0,)
    await stage.register(stage.beta)
    await stage.run(Sketch("shown", [init("init", 2), container("main", 2, 3)]))

    new, old = await stage.listed(), await stage.listed(wire.ALPHA)

    for listed in (new, old):
        assert set(listed["shown"]) == {"main"}
        held: dict[str, list[str]] = {}
        for row in listed["shown"]["main"].devices:
            held.setdefault(row.resource_name, []).extend(row.device_ids)
        assert set(held[ALPHA]) == set(stage.alpha.called("allocate")[1])
        assert set(held[BETA]) == set(stage.beta.called("allocate")[0])
    entries = 2 + 3 if stage.habits.entry_per_device else 2
    assert len(new["shown"]["main"].devices) == entries
    nodes = {
        row.resource_name: [node.ID for node in row.topology.nodes]
        for row in new["shown"]["main"].devices
    }
    assert nodes == ({ALPHA: [], BETA: [0]} if stage.habits.entry_per_device else nodes)


async def test_pod_resources_answer_what_their_version_knows(stage: Stage) -> None:
    await stage.run(one("asked", 2))
    async with wire.dial(stage.kubelet.resources) as channel:
        client = wire.PodResourcesClient(channel, 10)
        if wire.GET not in stage.habits.methods:
            for call in (client.get("default", "asked"), client.allocatable()):
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await call
                assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
            return
        (main,) = (await client.get("default", "asked")).pod_resources.containers
        assert {name for row in main.devices for name in row.device_ids} == set(
            stage.alpha.called("allocate")[0]
        )
        with pytest.raises(grpc.aio.AioRpcError, match="not found"):
            await client.get("default", "nobody")
        rows = (await client.allocatable()).devices
        offered = {name for row in rows if row.resource_name == ALPHA for name in row.device_ids}
        assert offered == set(IDS[ALPHA])


async def test_pod_resources_answer_so_many_calls_and_no_more(stage: Stage) -> None:
    async with wire.dial(stage.kubelet.resources) as channel:
        client = wire.PodResourcesClient(channel, 10)
        answers = await asyncio.gather(*(client.list() for _ in range(60)), return_exceptions=True)

    codes = {one.code() for one in answers if isinstance(one, grpc.aio.AioRpcError)}
    assert codes == ({grpc.StatusCode.RESOURCE_EXHAUSTED} if stage.habits.calls else set())


async def test_a_rejected_pod_stays_listed_where_old_kubelets_list_it(stage: Stage) -> None:
    stage.alpha.refuse = {"allocate": "no"}
    (outcome,) = await stage.run(one("rejected", 2))
    assert outcome.reason != ""

    assert ("rejected" in await stage.listed()) == stage.habits.lists_ended
    assert "rejected" in await stage.listed(wire.ALPHA)
    assert outcome.uid in [pod.uid for pod in await stage.kubelet.pods.pods()]


async def test_a_plugin_that_dies_leaves_capacity_and_nothing_to_be_had(stage: Stage) -> None:
    await stage.alpha.stop()

    await stage.offers(alpha=0)

    assert await stage.kubelet.capacity(ALPHA) == (10, 0)
    (outcome,) = await stage.run(one("late", 2))
    assert outcome.reason == "UnexpectedAdmissionError"
    assert ALPHA in outcome.message


async def test_a_restart_deletes_sockets_keeps_the_checkpoint_and_leaves_pods_alone(
    stage: Stage,
) -> None:
    (before,) = await stage.run(one("steady", 2))
    held = stage.checkpoint(before.uid)
    other = stage.kubelet.directory / "other-file"
    other.touch()
    calls = list(stage.alpha.calls)

    await stage.kubelet.restart()

    assert not (stage.kubelet.directory / "alpha.sock").exists()
    assert other.exists() != stage.habits.clears_files
    other.unlink(missing_ok=True)
    assert stage.checkpoint(before.uid) == held
    await stage.register(stage.alpha, stage.beta)
    (after,) = await stage.run(one("next", 8))
    assert after.reason == ""
    new = stage.alpha.calls[len(calls) :]
    assert [set(ids) for call, ids in new if call == "allocate"] == [set(IDS[ALPHA]) - held[0].ids]


async def test_a_stream_that_ends_late_takes_with_it_who_registered_since_or_not(
    stage: Stage,
) -> None:
    later = FakePlugin(stage.kubelet.directory, ALPHA, IDS[ALPHA])
    later.endpoint = "later.sock"
    await later.start()
    try:
        await later.register()
        await stage.soon(lambda: _true(later.watchers == 1))

        await stage.alpha.stop()

        await stage.offers(alpha=0 if stage.habits.drops_by_name else 10)
        await stage.soon(lambda: _true(later.watchers == (not stage.habits.drops_by_name)))
    finally:
        await later.stop()


async def test_an_ended_pod_stays_in_the_checkpoint_until_that_is_written_again(
    stage: Stage,
) -> None:
    (outcome,) = await stage.run(one("brief", 2, ends=True))
    await stage.delete(outcome.uid)
    await stage.listed()

    assert stage.checkpoint(outcome.uid) != ()
    stage.alpha.change({"a9"})
    await stage.offers(alpha=9)
    await stage.soon(lambda: _true(stage.checkpoint(PodUID(outcome.uid)) == ()))


async def _true(value: bool) -> bool:  # noqa: FBT001
    return value
