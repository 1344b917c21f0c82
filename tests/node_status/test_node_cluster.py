"""What a node's agent brings about at an API server, at the simulated one and at a real one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from gpumanager.gpu.health.reports import NodeCondition, NodeEvent
from gpumanager.gpu.inventory import read_inventory
from gpumanager.grants.grant import Claimant
from gpumanager.ids import PodUID
from gpumanager.kube.errors import ApiRefused
from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_INVENTORY,
    ANNOTATION_PREDICATE_GPU_INDEX,
)
from gpumanager.node_status.labels import Software
from gpumanager.node_status.service import Facts, NodeCluster, status_patch
from tests.kube.api_world import ApiWorld, until
from tests.node_status.grants import facts, granted, two_gpus

pytest_plugins = ["tests.kube.api_fixtures"]

IDX_0 = ANNOTATION_PREDICATE_GPU_INDEX + "0"
REFUSAL = (
    "Allocate failed due to rpc error: code = Unknown desc = no GPU has room: 30 cores asked, "
    "which is unexpected"
)


TAKEN = NodeEvent(True, "GpuMemoryTaken", "1 GiB behind the shim")


def unhealthy(message: str) -> NodeCondition:
    return NodeCondition("GpusHealthy", False, "GpuUnhealthy", message)


@asynccontextmanager
async def running(world: ApiWorld, known: Facts, **settings: Any) -> AsyncIterator[NodeCluster]:
    member = NodeCluster(world.api, world.node, **settings)
    task = asyncio.create_task(member.run(lambda: known))
    try:
        yield member
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def annotations(world: ApiWorld, name: str) -> dict[str, str]:
    found = await world.api.get(world.pod_path(name))
    return dict(found["metadata"].get("annotations") or {})


async def events(world: ApiWorld, uid: str) -> list[Any]:
    selector = f"involvedObject.uid={uid}"
    path = "/api/v1/namespaces/default/events"
    return list((await world.api.get(path, fieldSelector=selector))["items"] or [])


async def test_a_container_s_gpu_is_written_to_its_pod(world: ApiWorld) -> None:
    pod = await world.pod("a", annotations={ANNOTATION_GPU_ASSIGNED: "false"})
    grant = granted(pod["metadata"]["uid"], two_gpus().gpus[1])

    async with running(world, facts(grant)):

        async def assigned() -> Any:
            found = await annotations(world, "a")
            return found if found[ANNOTATION_GPU_ASSIGNED] == "true" else None

        assert (await until(assigned))[IDX_0] == "5"


async def test_a_plan_that_came_out_otherwise_is_corrected_and_said(world: ApiWorld) -> None:
    pod = await world.pod("a", annotations={IDX_0: "4"})
    uid = pod["metadata"]["uid"]

    async with running(world, facts(granted(uid, two_gpus().gpus[1]))):
        (event,) = await until(lambda: events(world, uid))

    assert (await annotations(world, "a"))[IDX_0] == "5"
    assert event["reason"] == "GpuPlanCorrected"
    assert event["message"] == "container main has GPU 5, planned was 4"


async def test_nothing_is_written_before_the_facts_are_known(world: ApiWorld) -> None:
    """After a restart, a GPU that is out of use would be told to be free again."""
    told: list[Facts] = []
    member, rounds = NodeCluster(world.api, world.node), list[int]()

    def known() -> Facts | None:
        rounds.append(1)
        return told[0] if told else None

    async def inventory() -> Any:
        annotated = (await world.api.get(world.node_path))["metadata"].get("annotations") or {}
        return annotated.get(ANNOTATION_INVENTORY)

    task = asyncio.create_task(member.run(known))
    try:
        while len(rounds) < 2:
            member.correct()
            await asyncio.sleep(0.05)
        assert await inventory() is None

        told.append(Facts(two_gpus()))
        member.correct()
        assert await until(inventory)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_node_gets_labels_and_the_inventory_of_its_gpus(world: ApiWorld) -> None:
    known = Facts(two_gpus(), software=Software("555.58.02", "12.5"))
    labels = {"gaia.tencent.com/gpu-model": "", "team": "vision"}

    async with running(world, known, labels=labels):

        async def labelled() -> Any:
            metadata = (await world.api.get(world.node_path))["metadata"]
            return metadata if "team" in (metadata.get("labels") or {}) else None

        metadata = await until(labelled)

    ours = {name: text for name, text in metadata["labels"].items() if "tencent" in name}
    assert ours == {
        "tencent.com/gpu-product": "Tesla-V100-SXM2-16GB",
        "tencent.com/gpu-memory": "16384",
        "tencent.com/gpu-count": "2",
        "tencent.com/gpu-driver-version": "555.58.02",
        "tencent.com/gpu-cuda-version": "12.5",
        "gaia.tencent.com/gpu-model": "Tesla-V100-SXM2-16GB",
    }
    assert read_inventory(metadata["annotations"][ANNOTATION_INVENTORY])[0] == two_gpus()


async def test_a_condition_of_the_node_is_written_and_written_anew(world: ApiWorld) -> None:
    async def condition(message: str) -> Any:
        node = await world.api.get(world.node_path)
        found = (node.get("status") or {}).get("conditions") or ()
        return next((one for one in found if one.get("message") == message), None)

    for message in ("GPU 0 is lost", "GPU 0 and 1 are lost"):
        async with running(world, facts()) as member:
            await until(lambda: labelled(world))  # the node was read, without this condition
            member.condition(unhealthy(message))
            found = await until(partial(condition, message))

        assert (found["type"], found["status"]) == ("GpusHealthy", "False")
        assert found["reason"] == "GpuUnhealthy"


def is_said(message: str, status: str = "False", *, since: str = "8:00", at: str = "8:00") -> Any:
    return {
        "type": "GpusHealthy",
        "status": status,
        "reason": "GpuUnhealthy",
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": since,
    }


@pytest.mark.parametrize(
    ("has", "written"),
    [
        pytest.param([], is_said("now", since="9:00", at="9:00"), id="a new one begins now"),
        pytest.param([is_said("now")], None, id="what is said is not written again"),
        pytest.param(
            [is_said("before")],
            is_said("now", at="9:00"),
            id="with other words since the same time",
        ),
        pytest.param(
            [is_said("now", "True")],
            is_said("now", since="9:00", at="9:00"),
            id="with another status since now",
        ),
        pytest.param(
            [is_said("now") | {"type": "Ready"}],
            is_said("now", since="9:00", at="9:00"),
            id="beside conditions of others",
        ),
    ],
)
def test_a_condition_keeps_the_time_since_when_it_holds(has: list[Any], written: Any) -> None:
    found = status_patch({"status": {"conditions": has}}, [unhealthy("now")], "9:00")

    assert found == (written and {"status": {"conditions": [written]}})


async def test_what_happened_becomes_an_event_of_the_pod(world: ApiWorld) -> None:
    uid = (await world.pod("a"))["metadata"]["uid"]

    async with running(world, facts()) as member:
        member.pod_event(PodUID(uid), TAKEN)
        (event,) = await until(lambda: events(world, uid))

    assert (event["type"], event["reason"]) == ("Warning", "GpuMemoryTaken")
    assert event["involvedObject"]["name"] == world.full("a")
    assert event["source"]["host"] == world.node


async def test_a_pod_s_name_is_known_once_the_watch_has_seen_it(world: ApiWorld) -> None:
    uid = PodUID((await world.pod("a"))["metadata"]["uid"])

    async with running(world, facts()) as member:

        async def known() -> str | None:
            return member.pod_name(uid)

        name = await until(known)

    assert name.endswith(f"/{world.full('a')}")
    assert member.pod_name(PodUID("of another node")) is None


async def test_a_pod_terminates_once_its_deletion_is_seen(world: ApiWorld) -> None:
    uid = PodUID((await world.pod("a"))["metadata"]["uid"])

    async with running(world, facts()) as member:

        async def known() -> bool:
            return member.pod_name(uid) is not None

        async def terminating() -> bool:
            return member.terminating(uid)

        await until(known)
        assert not member.terminating(uid)
        await world.api.delete(world.pod_path("a"), {"apiVersion": "v1", "kind": "DeleteOptions"})
        assert await until(terminating)


async def test_the_same_event_again_is_counted_after_a_restart_too(world: ApiWorld) -> None:
    uid = (await world.pod("a"))["metadata"]["uid"]

    async def counted(times: int) -> Any:
        found = await events(world, uid)
        return found if found and found[0]["count"] == times else None

    for times in (1, 2):
        async with running(world, facts()) as member:
            member.pod_event(PodUID(uid), TAKEN)
            found = await until(partial(counted, times))

    assert len(found) == 1


async def test_a_pod_whose_gpu_falls_out_of_use_hears_of_it_and_the_inventory_says_so(
    world: ApiWorld,
) -> None:
    uids = [(await world.pod(name))["metadata"]["uid"] for name in ("a", "b")]
    grants = tuple(granted(uid, two_gpus().gpus[i]) for i, uid in enumerate(uids))
    harmed = two_gpus().gpus[1].uuid

    async with running(world, Facts(two_gpus(), grants, unhealthy=frozenset({harmed}))):
        (event,) = await until(lambda: events(world, uids[1]))
        text = await until(lambda: inventory_of(world))

    assert event["reason"] == "GpuUnhealthy"
    assert await events(world, uids[0]) == []
    assert read_inventory(text)[1] == {harmed}


async def test_all_pods_that_share_a_claim_hear_that_their_gpu_is_out_of_use(
    world: ApiWorld,
) -> None:
    uids = [PodUID((await world.pod(name))["metadata"]["uid"]) for name in ("a", "b")]
    gpu = two_gpus().gpus[0]
    shared = granted(uids[0], gpu)
    known = Facts(
        two_gpus(),
        (shared,),
        unhealthy=frozenset({gpu.uuid}),
        owners=lambda grant: uids if grant is shared else (),
    )

    async with running(world, known):
        told = [await until(partial(events, world, uid)) for uid in uids]

    assert [one["reason"] for found in told for one in found] == ["GpuUnhealthy"] * 2


async def inventory_of(world: ApiWorld) -> str | None:
    metadata = (await world.api.get(world.node_path))["metadata"]
    text: str | None = (metadata.get("annotations") or {}).get(ANNOTATION_INVENTORY)
    return text


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}


async def test_an_owned_pod_that_was_not_admitted_makes_room_for_another(world: ApiWorld) -> None:
    uid = (await world.pod("a", ownerReferences=[OWNER]))["metadata"]["uid"]
    await world.fail("a", REFUSAL)

    async def gone() -> bool:
        try:
            await world.api.get(world.pod_path("a"))
        except ApiRefused as error:
            return error.status == 404
        return False

    async with running(world, facts()):
        await until(gone)
        said = await until(lambda: both(world, uid))

    assert said["GpuRefused"] == "no GPU has room: 30 cores asked"
    assert "ReplicaSet" in said["GpuPodRecycled"]


async def both(world: ApiWorld, uid: str) -> dict[str, str] | None:
    found = {event["reason"]: event["message"] for event in await events(world, uid)}
    return found if len(found) == 2 else None


async def test_nothing_is_deleted_where_the_operator_does_not_want_it(
    simulated: ApiWorld,
) -> None:
    world = simulated
    uid = (await world.pod("a", ownerReferences=[OWNER]))["metadata"]["uid"]
    await world.fail("a", REFUSAL)

    async with running(world, facts(), recycle=False):
        await until(lambda: events(world, uid))

    assert (await world.api.get(world.pod_path("a")))["metadata"]["uid"] == uid


async def test_what_was_not_told_in_an_outage_is_told_after_it(simulated: ApiWorld) -> None:
    world, server = simulated, simulated.simulated
    assert server
    uid = (await world.pod("a"))["metadata"]["uid"]

    async with running(world, facts()) as member:
        await until(lambda: labelled(world))
        await server.stop()
        member.pod_event(PodUID(uid), TAKEN)
        await until(lambda: unreachable(member))
        await server.start()
        (event,) = await until(lambda: events(world, uid), 30)

    assert event["reason"] == "GpuMemoryTaken"


async def labelled(world: ApiWorld) -> bool:
    metadata = (await world.api.get(world.node_path))["metadata"]
    return "tencent.com/gpu-count" in (metadata.get("labels") or {})


async def unreachable(member: NodeCluster) -> bool:
    return not member.writer.reachable


async def test_a_conflict_is_tried_again_at_once(
    simulated: ApiWorld, caplog: pytest.LogCaptureFixture
) -> None:
    assert simulated.simulated
    uid = (await simulated.pod("a"))["metadata"]["uid"]
    simulated.simulated.refuse(409, "Conflict", times=2)

    async with running(simulated, facts(granted(uid, two_gpus().gpus[0]))):
        found = await until(lambda: assigned_to(simulated))

    assert found[IDX_0] == "4"
    assert "Conflict" not in caplog.text


async def test_a_static_pod_is_known_by_the_kubelet_s_uid(simulated: ApiWorld) -> None:
    mirror = {"kubernetes.io/config.mirror": "k1", "kubernetes.io/config.hash": "k1"}
    api_uid = (await simulated.pod("a", annotations=mirror))["metadata"]["uid"]

    async with running(simulated, facts(granted("k1", two_gpus().gpus[0]))) as member:
        member.pod_event(PodUID("k1"), TAKEN)
        (event,) = await until(lambda: events(simulated, "k1"))
        assigned = await until(lambda: assigned_to(simulated))

    assert event["involvedObject"]["uid"] == "k1" != api_uid
    assert assigned[ANNOTATION_GPU_ASSIGNED] == "true"


async def assigned_to(world: ApiWorld) -> dict[str, str] | None:
    found = await annotations(world, "a")
    return found if IDX_0 in found else None


async def test_the_inventory_is_written_once_and_not_again(simulated: ApiWorld) -> None:
    assert simulated.simulated
    async with running(simulated, facts()) as member:
        await until(lambda: labelled(simulated))
        for _ in range(3):
            rounds = member.writer.rounds
            member.correct(Claimant(PodUID("u"), "default", "p", "main"), two_gpus().gpus)
            await until(partial(later_round, member, rounds))

    patches = [call for call in simulated.simulated.calls if call.method == "PATCH"]
    assert len(patches) == 1
    assert set(json.loads(patches[0].body)) == {"metadata"}


async def later_round(member: NodeCluster, than: int) -> bool:
    return member.writer.rounds > than
