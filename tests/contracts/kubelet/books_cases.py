"""What the kubelet tells of who holds what: its checkpoint and PodResources."""

import asyncio

import grpc
import grpc.aio
import pytest

from gpumanager.ids import PodUID
from gpumanager.kubelet import wire
from tests.contracts.kubelet.kubelet_stage import IDS, Stage, container, init, is_so, one
from tests.contracts.kubelet.kubelet_under_test import ALPHA, BETA, Sketch


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
    def registered() -> set[str]:
        return set(stage.checkpoint_text()["RegisteredDevices"].get(ALPHA, ()))

    await stage.soon(lambda: is_so(registered() == set(IDS[ALPHA])))


async def test_the_checkpoint_goes_by_numa_node(stage: Stage) -> None:
    stage.beta.nodes = (0,)
    await stage.register(stage.beta)
    (outcome,) = await stage.run(one("aligned", 2, 1))

    rows = stage.checkpoint_text()["PodDeviceEntries"]
    nodes = {
        row["ResourceName"]: set(row["DeviceIDs"]) for row in rows if row["PodUID"] == outcome.uid
    }
    assert nodes == {ALPHA: {str(stage.version.node_of_none)}, BETA: {"0"}}


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
    entries = 2 + 3 if stage.version.entry_per_device else 2
    assert len(new["shown"]["main"].devices) == entries
    nodes = {
        row.resource_name: [node.ID for node in row.topology.nodes]
        for row in new["shown"]["main"].devices
    }
    assert nodes == ({ALPHA: [], BETA: [0]} if stage.version.entry_per_device else nodes)


async def test_pod_resources_answer_what_their_version_knows(stage: Stage) -> None:
    await stage.run(one("asked", 2))
    async with wire.dial(stage.kubelet.resources) as channel:
        client = wire.PodResourcesClient(channel, 60)
        if wire.GET not in stage.version.methods:
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
    """How many come within a second is the machine's affair: a slow one asks several times."""
    codes: set[grpc.StatusCode] = set()

    async def asked() -> bool:
        calls = (client.list() for _ in range(200))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        codes.update(one.code() for one in answers if isinstance(one, grpc.aio.AioRpcError))
        return bool(codes) or not stage.version.calls

    async with wire.dial(stage.kubelet.resources) as channel:
        client = wire.PodResourcesClient(channel, 60)
        await stage.soon(asked)

    assert codes == ({grpc.StatusCode.RESOURCE_EXHAUSTED} if stage.version.calls else set())


async def test_a_rejected_pod_stays_listed_where_old_kubelets_list_it(stage: Stage) -> None:
    stage.alpha.refuse = {"allocate": "no"}
    (outcome,) = await stage.run(one("rejected", 2))
    assert outcome.reason != ""

    assert ("rejected" in await stage.listed()) == stage.version.lists_ended
    assert "rejected" in await stage.listed(wire.ALPHA)
    assert outcome.uid in [pod.uid for pod in await stage.kubelet.pods.pods()]


async def test_an_ended_pod_stays_in_the_checkpoint_until_that_is_written_again(
    stage: Stage,
) -> None:
    (outcome,) = await stage.run(one("brief", 2, ends=True))
    await stage.delete(outcome.uid)
    await stage.listed()

    assert stage.checkpoint(outcome.uid) != ()
    stage.alpha.change({"a9"})
    await stage.offers(alpha=9)
    await stage.soon(lambda: is_so(stage.checkpoint(PodUID(outcome.uid)) == ()))
