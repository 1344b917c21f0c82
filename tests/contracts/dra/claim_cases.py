"""What a driver is asked while pods with claims start, run and end, and what containers get."""

import asyncio

import pytest

from gpumanager.dra.api import dra_v1_pb2 as pb
from tests.contracts.dra.claims_kubelet import ROW, ClaimingContainer, ClaimingPod
from tests.contracts.dra.claims_stage import SYNC_SECONDS, ClaimsStage, pod, uses
from tests.contracts.dra.stub_driver import KIND

REASON = "FailedPrepareDynamicResources"
PREFIX = "Failed to prepare dynamic resources: prepare dynamic resources: "


async def test_all_claims_of_a_pod_are_prepared_in_one_call_before_its_containers_start(
    stage: ClaimsStage,
) -> None:
    uids = {name: await stage.claim(name) for name in ("left", "right")}
    containers = tuple(uses(name, None) for name in ("one", "two"))

    uid = await stage.start(pod("whole", "left", "right", containers=containers))
    await stage.soon(lambda: stage.driver.calls)
    (call,) = stage.driver.calls
    await stage.runs(uid, pod("whole", containers=containers))

    assert (call.name, call.claims) == ("prepare", uids)
    assert call.namespaces == {"default"}
    assert stage.driver.calls == [call]


async def test_a_container_gets_the_devices_of_the_requests_that_it_names(
    stage: ClaimsStage,
) -> None:
    await stage.claim("shared", "a", "b")
    stage.driver.devices["shared"] = [
        stage.driver.device("thing-0", "a", cdi="of-a"),
        stage.driver.device("thing-1", "b", cdi="of-b"),
        stage.driver.device("thing-2", cdi="of-all"),
    ]
    containers = (
        uses("first", "a"),
        uses("second", "b"),
        uses("whole", None),
        uses("both", "b", "a"),
        ClaimingContainer("none", uses=()),
    )

    uid = await stage.run(pod("requests", "shared", containers=containers))

    found = {}
    for one in containers:
        env = await stage.kubelet.environment(uid, one.name)
        found[one.name] = {name for name in env if name.startswith("HAS_")}
    assert found == {
        "first": {"HAS_OF_A", "HAS_OF_ALL"},
        "second": {"HAS_OF_B", "HAS_OF_ALL"},
        "whole": {"HAS_OF_A", "HAS_OF_B", "HAS_OF_ALL"},
        "both": {"HAS_OF_A", "HAS_OF_B", "HAS_OF_ALL"},
        "none": set(),
    }


async def test_an_alternatives_own_name_in_the_answer_is_nobodys_request(
    stage: ClaimsStage,
) -> None:
    await stage.claim("tiers", "gpu")
    stage.driver.devices["tiers"] = [stage.driver.device("thing-0", "gpu/small", cdi="small")]

    uid = await stage.run(pod("tiers", "tiers", containers=(uses("main", "gpu"),)))

    assert "HAS_SMALL" not in await stage.kubelet.environment(uid, "main")


async def test_a_devices_variable_replaces_the_pods_own(stage: ClaimsStage) -> None:
    await stage.claim("wins")
    device = stage.driver.device("thing-0", "one", cdi="wins", env={"LIMIT": "30"})
    stage.driver.devices["wins"] = [device]

    uid = await stage.run(pod("wins", "wins", containers=(uses("main", None, env={"LIMIT": "x"}),)))

    assert (await stage.kubelet.environment(uid, "main"))["LIMIT"] == "30"


async def test_a_cdi_device_that_no_file_has_keeps_the_container_from_starting(
    stage: ClaimsStage,
) -> None:
    await stage.claim("absent")
    absent = pb.Device(pool_name="pool", device_name="thing-0", cdi_device_ids=[f"{KIND}=none"])
    stage.driver.devices["absent"] = [absent]

    uid = await stage.start(pod("absent", "absent"))

    said = await stage.not_started(uid, "Failed")
    assert f"unresolvable CDI devices {KIND}=none" in said


async def test_a_container_that_starts_again_is_not_prepared_again(stage: ClaimsStage) -> None:
    await stage.claim("again")

    uid = await stage.run(pod("again", "again", containers=(uses("main", None, starts=3),)))

    assert stage.driver.prepared() == [{"again"}]
    assert "HAS_AGAIN" in await stage.kubelet.environment(uid, "main")


async def test_a_kubelet_that_starts_again_prepares_nothing_and_unprepares_what_there_is(
    stage: ClaimsStage,
) -> None:
    await stage.claim("kept")
    uid = await stage.run(pod("kept", "kept"))
    before = stage.checkpoint()

    await stage.kubelet.restart()
    await stage.soon(lambda: len(stage.driver.told) == 2)
    await stage.registered(stage.driver)

    assert stage.checkpoint() == before
    assert stage.driver.prepared() == [{"kept"}]
    await stage.delete(uid)
    await stage.soon(lambda: stage.driver.unprepared() == [{"kept"}], SYNC_SECONDS)


async def test_the_checkpoint_has_claims_with_their_pods_and_devices(stage: ClaimsStage) -> None:
    claim = await stage.claim("written")
    uid = await stage.run(pod("written", "written"))

    assert stage.checkpoint()["written"] == {
        "ClaimUID": claim,
        "ClaimName": "written",
        "Namespace": "default",
        "PodUIDs": {uid: {}},
        "DriverState": {
            stage.driver.name: {
                "Devices": [
                    {
                        "PoolName": "pool",
                        "DeviceName": "thing-0",
                        "ShareID": None,
                        "RequestNames": ["one"],
                        "CDIDeviceIDs": [f"{KIND}=written"],
                    }
                ]
            }
        },
    }


async def test_a_refusal_is_an_event_with_the_drivers_words_and_the_pod_waits(
    stage: ClaimsStage,
) -> None:
    await stage.claim("refused")
    stage.driver.refuse = {"refused": "90 of 100 cores are taken"}

    uid = await stage.start(pod("refused", "refused"))

    assert await stage.not_started(uid, REASON) == (
        f"{PREFIX}NodePrepareResources failed for ResourceClaim refused: 90 of 100 cores are taken"
    )
    stage.driver.refuse = {}
    await stage.soon(lambda: stage.kubelet.starts(uid, "main"), SYNC_SECONDS)
    assert len(stage.driver.prepared()) >= 2


async def test_each_claim_has_to_be_answered(stage: ClaimsStage) -> None:
    await stage.claim("left")
    await stage.claim("right")

    def forget(response: pb.NodePrepareResourcesResponse) -> pb.NodePrepareResourcesResponse:
        del response.claims[next(iter(response.claims))]
        return response

    stage.driver.answer = forget
    uid = await stage.start(pod("skipped", "left", "right"))

    said = await stage.not_started(uid, REASON)
    assert said == f"{PREFIX}NodePrepareResources skipped 1 ResourceClaims"


async def test_a_claim_that_was_not_asked_about_is_refused(stage: ClaimsStage) -> None:
    await stage.claim("asked")

    def invent(response: pb.NodePrepareResourcesResponse) -> pb.NodePrepareResourcesResponse:
        return pb.NodePrepareResourcesResponse(
            claims={"invented": pb.NodePrepareResourceResponse()}
        )

    stage.driver.answer = invent
    uid = await stage.start(pod("invented", "asked"))

    said = await stage.not_started(uid, REASON)
    assert said.endswith("NodePrepareResources returned result for unknown claim UID invented")


async def test_a_driver_that_is_away_keeps_pods_waiting_until_it_is_back(
    stage: ClaimsStage,
) -> None:
    await stage.claim("patient")
    await stage.driver.hang_up()
    await stage.soon(lambda: not stage.driver.watchers)

    uid = await stage.start(pod("patient", "patient"))

    assert "rpc error: code = Unavailable" in await stage.not_started(uid, REASON)
    await stage.driver.serve()
    await stage.soon(lambda: stage.kubelet.starts(uid, "main"), SYNC_SECONDS)


async def test_a_pod_that_its_claim_is_not_reserved_for_is_refused_without_the_driver(
    stage: ClaimsStage,
) -> None:
    claim = await stage.claim("guarded")

    uid = await stage.start(pod("intruder", "guarded", reserved=()))

    assert await stage.not_started(uid, REASON) == (
        f"{PREFIX}pod intruder ({uid}) is not allowed to use ResourceClaim guarded ({claim})"
    )
    assert stage.driver.calls == []


async def test_a_claim_that_is_gone_is_refused(stage: ClaimsStage) -> None:
    await stage.claim("gone")
    stage.driver.refuse = {"gone": "not yet"}
    uid = await stage.start(pod("gone", "gone"))
    await stage.not_started(uid, REASON)

    await stage.kubelet.free("gone")

    async def said() -> bool:
        warnings = await stage.kubelet.warnings(uid)
        return any("fetch ResourceClaim gone" in message for _, message in warnings)

    await stage.soon(said, SYNC_SECONDS)


async def test_pods_of_one_claim_have_it_prepared_once_and_unprepared_with_the_last(
    stage: ClaimsStage,
) -> None:
    await stage.claim("common")
    first = await stage.run(pod("first", "common"))
    second = await stage.run(pod("second", "common"))
    assert stage.driver.prepared() == [{"common"}]

    await stage.delete(first)
    await stage.soon(lambda: stage.kubelet.gone(first), SYNC_SECONDS)
    assert stage.driver.unprepared() == []
    assert set(stage.checkpoint()["common"]["PodUIDs"]) == {second}

    await stage.delete(second)
    await stage.soon(lambda: stage.kubelet.gone(second), SYNC_SECONDS)
    assert stage.driver.unprepared() == [{"common"}]
    assert stage.checkpoint() == {}


async def test_unpreparing_is_tried_until_it_succeeds_and_the_pod_stays_so_long(
    stage: ClaimsStage,
) -> None:
    await stage.claim("sticky")
    uid = await stage.run(pod("sticky", "sticky"))
    stage.driver.refuse = {"sticky": "busy"}

    await stage.delete(uid)

    await stage.soon(lambda: len(stage.driver.unprepared()) >= 2, SYNC_SECONDS)
    assert not await stage.kubelet.gone(uid)
    stage.driver.refuse = {}
    await stage.soon(lambda: stage.kubelet.gone(uid), SYNC_SECONDS)
    assert stage.checkpoint() == {}


async def test_a_claim_of_the_same_name_waits_until_the_one_before_is_unprepared(
    stage: ClaimsStage,
) -> None:
    before = await stage.claim("name")
    uid = await stage.run(pod("forced", "name"))
    stage.driver.refuse = {"name": "busy"}
    await stage.delete(uid, force=True)
    await stage.soon(stage.driver.unprepared, SYNC_SECONDS)
    await stage.kubelet.free("name")
    after = await stage.claim("name")

    later = await stage.start(pod("later", "name"))

    assert await stage.not_started(later, REASON) == (
        f"{PREFIX}old ResourceClaim with same name name and different UID {before} still exists "
        "(previous pod force-deleted?!)"
    )
    stage.driver.refuse = {}
    await stage.soon(lambda: stage.kubelet.starts(later, "main"), SYNC_SECONDS)
    assert [call.claims for call in stage.driver.called("prepare")] == [
        {"name": before},
        {"name": after},
    ]


async def test_a_pod_that_is_deleted_while_it_waits_is_unprepared(stage: ClaimsStage) -> None:
    await stage.claim("brief")
    stage.driver.refuse = {"brief": "not yet"}
    uid = await stage.start(pod("brief", "brief"))
    await stage.not_started(uid, REASON)
    stage.driver.refuse = {}

    await stage.delete(uid)

    await stage.soon(lambda: stage.kubelet.gone(uid), SYNC_SECONDS)
    assert stage.driver.unprepared() == [{"brief"}]


async def test_a_claim_that_is_being_unprepared_gets_no_new_pod_or_loses_it(
    stage: ClaimsStage,
) -> None:
    """An older kubelet adds the pod to a claim that is about to be forgotten."""
    await stage.claim("handover")
    first = await stage.run(pod("first", "handover"))
    holding, going_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        holding.set()
        await going_on.wait()

    stage.driver.during_unprepare = hold
    await stage.delete(first)
    await stage.soon(holding.is_set)

    second = await stage.start(pod("second", "handover"))

    if stage.kubelet.version.guards_unpreparing:
        said = await stage.not_started(second, REASON)
        assert said == f"{PREFIX}ResourceClaim handover is being unprepared"
        going_on.set()
        await stage.soon(lambda: stage.kubelet.starts(second, "main"), SYNC_SECONDS)
        assert stage.driver.prepared() == [{"handover"}] * 2
    else:
        await stage.soon(lambda: set(stage.checkpoint()["handover"]["PodUIDs"]) == {first, second})
        going_on.set()
        await stage.soon(lambda: stage.checkpoint() == {}, SYNC_SECONDS)
        assert stage.driver.prepared() == [{"handover"}]


async def test_the_end_of_a_refused_pod_leaves_others_alone_or_not(stage: ClaimsStage) -> None:
    """An older kubelet unprepares what the other pod has, while that pod runs."""
    await stage.claim("guarded")
    await stage.run(pod("owner", "guarded"))
    uid = await stage.start(pod("intruder", "guarded", reserved=()))
    await stage.not_started(uid, REASON)

    await stage.delete(uid)
    await stage.soon(lambda: stage.kubelet.gone(uid), SYNC_SECONDS)

    assert stage.driver.unprepared() == ([] if stage.kubelet.version.only_own else [{"guarded"}])


async def test_a_second_preparation_replaces_the_devices_of_the_first_or_adds_to_them(
    stage: ClaimsStage,
) -> None:
    """A kubelet that was started again does not know that the claim is prepared."""
    await stage.claim("twice")
    await stage.run(pod("first", "twice"))
    await stage.kubelet.restart()
    await stage.soon(lambda: len(stage.driver.told) == 2)
    await stage.registered(stage.driver)

    await stage.run(pod("second", "twice"))

    assert stage.driver.prepared() == [{"twice"}] * 2
    (state,) = stage.checkpoint()["twice"]["DriverState"].values()
    assert len(state["Devices"]) == (1 if stage.kubelet.version.replaces_devices else 2)


@pytest.mark.parametrize("claims", [("plain",), ()])
async def test_a_container_without_claims_starts_beside_one_with(
    stage: ClaimsStage, claims: tuple[str, ...]
) -> None:
    for claim in claims:
        await stage.claim(claim)
    rows = dict(zip((ROW,), claims, strict=False))

    uid = await stage.run(ClaimingPod("mixed", rows, (ClaimingContainer("main", uses=()),)))

    assert stage.driver.prepared() == [{claim} for claim in claims]
    assert "HAS_PLAIN" not in await stage.kubelet.environment(uid, "main")


async def test_a_pod_that_is_deleted_by_force_while_it_is_prepared_never_starts(
    stage: ClaimsStage,
) -> None:
    await stage.claim("hasty")
    going_on = asyncio.Event()
    stage.driver.during_prepare = going_on.wait
    uid = await stage.start(pod("hasty", "hasty"))
    await stage.soon(stage.driver.prepared)

    await stage.delete(uid, force=True)
    going_on.set()

    await stage.soon(lambda: stage.driver.unprepared() == [{"hasty"}], SYNC_SECONDS)
    assert await stage.kubelet.starts(uid, "main") == 0
