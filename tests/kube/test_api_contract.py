"""What holds of the API server, of the simulated one and of a real one alike."""

import asyncio

import pytest

from gpumanager.kube.client import MERGE
from gpumanager.kube.errors import ApiRefused
from tests.kube.api_world import STRATEGIC, ApiWorld, first

pytest_plugins = ["tests.kube.api_fixtures"]


async def test_a_list_has_the_pods_of_the_node_and_the_version_it_is_of(world: ApiWorld) -> None:
    made = await world.pod("a")

    listed = await world.api.get("/api/v1/pods", fieldSelector=world.selector)

    assert [pod["metadata"]["uid"] for pod in listed["items"]] == [made["metadata"]["uid"]]
    assert int(listed["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_a_list_of_another_node_has_none(world: ApiWorld) -> None:
    await world.pod("a")

    listed = await world.api.get("/api/v1/pods", fieldSelector="spec.nodeName=nobody-s")

    assert (listed["items"] or []) == []


async def test_a_list_comes_in_pages(world: ApiWorld) -> None:
    for name in ("a", "b", "c"):
        await world.pod(name)
    query: dict[str, object] = {"fieldSelector": world.selector, "limit": 2}

    page = await world.api.get("/api/v1/pods", **query)
    rest = await world.api.get(
        "/api/v1/pods", **query, **{"continue": page["metadata"]["continue"]}
    )

    assert [len(one["items"]) for one in (page, rest)] == [2, 1]
    assert not rest["metadata"].get("continue")


async def test_a_watch_brings_what_came_after_its_version(world: ApiWorld) -> None:
    await world.pod("before")
    version = await world.version()
    query = {"fieldSelector": world.selector, "resourceVersion": version}

    async with world.api.watch("/api/v1/pods", 30, **query) as events:
        await world.pod("after")
        await world.api.patch(world.pod_path("after"), {"metadata": {"annotations": {"a": "1"}}})
        await world.delete(world.pod_path("after"))
        found = await first(events, 4)

    assert [event["type"] for event in found] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert found[2]["object"]["metadata"]["deletionTimestamp"]
    assert {event["object"]["metadata"]["name"] for event in found} == {world.full("after")}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
    assert versions == sorted(set(versions))


async def test_a_watch_ends_by_itself_after_the_time_asked_for(world: ApiWorld) -> None:
    query = {"fieldSelector": world.selector, "resourceVersion": await world.version()}

    async with asyncio.timeout(300), world.api.watch("/api/v1/pods", 1, **query) as events:
        assert [event async for event in events if event["type"] != "BOOKMARK"] == []


async def test_before_a_watch_ends_a_bookmark_says_how_far_it_came(world: ApiWorld) -> None:
    await world.pod("a")
    query = {"fieldSelector": "spec.nodeName=nobody-s", "resourceVersion": await world.version()}
    made = await world.pod("b")
    seconds = 1 if world.simulated else 3  # a real one sends it a second or two before the end

    watching = world.api.watch("/api/v1/pods", seconds, allowWatchBookmarks="true", **query)
    async with watching as events:
        found = [event async for event in events]

    assert {event["type"] for event in found} == {"BOOKMARK"}
    assert found[-1]["object"]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_watch_from_version_0_begins_with_what_is_there(world: ApiWorld) -> None:
    await world.pod("a")
    query = {"fieldSelector": world.selector, "resourceVersion": "0"}

    async with world.api.watch("/api/v1/pods", 30, **query) as events:
        (event,) = await first(events, 1)

    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", world.full("a"))


async def test_a_merge_patch_changes_what_it_names_and_nothing_else(world: ApiWorld) -> None:
    await world.pod("a", annotations={"kept": "1", "changed": "1", "removed": "1"})
    patch = {"metadata": {"annotations": {"changed": "2", "removed": None, "new": "3"}}}

    after = await world.api.patch(world.pod_path("a"), patch, MERGE)

    assert after["metadata"]["annotations"] == {"kept": "1", "changed": "2", "new": "3"}


async def test_a_patch_for_another_pod_of_the_name_is_refused(world: ApiWorld) -> None:
    await world.pod("a")
    patch = {"metadata": {"uid": "another", "annotations": {"wrong": "1"}}}

    with pytest.raises(ApiRefused) as refused:
        await world.api.patch(world.pod_path("a"), patch, MERGE)

    assert (refused.value.status, refused.value.reason) == (422, "Invalid")


async def test_a_patch_of_a_pod_s_own_uid_is_none(world: ApiWorld) -> None:
    made = await world.pod("a")
    patch = {"metadata": {"uid": made["metadata"]["uid"], "annotations": {"right": "1"}}}

    after = await world.api.patch(world.pod_path("a"), patch, MERGE)

    assert after["metadata"]["annotations"] == {"right": "1"}


async def test_what_is_not_there_is_not_found(world: ApiWorld) -> None:
    for call in (
        world.api.get(world.pod_path("none")),
        world.api.patch(world.pod_path("none"), {"metadata": {}}),
        world.api.delete(world.pod_path("none"), {}),
    ):
        with pytest.raises(ApiRefused) as refused:
            await call
        assert (refused.value.status, refused.value.reason) == (404, "NotFound")


async def test_conditions_are_merged_by_their_type(world: ApiWorld) -> None:
    def condition(kind: str, status: str) -> dict[str, object]:
        stamp = "2026-01-01T00:00:00Z"
        times = {"lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        return {"type": kind, "status": status, "reason": "R", "message": "m", **times}

    async def patch(*conditions: object) -> None:
        body = {"status": {"conditions": conditions}}
        await world.api.patch(f"{world.node_path}/status", body, STRATEGIC)

    await patch(condition("Ready", "True"), condition("GpusHealthy", "True"))
    await patch(condition("GpusHealthy", "False"))

    node = await world.api.get(world.node_path)
    found = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    assert (found["Ready"], found["GpusHealthy"]) == ("True", "False")


async def test_a_patch_of_the_node_leaves_its_status_and_the_other_way_round(
    world: ApiWorld,
) -> None:
    label = {"metadata": {"labels": {"tried": "yes"}}}
    status = {"status": {"capacity": {"tried": "1"}}}

    await world.api.patch(world.node_path, {**label, **status})
    after_node = await world.api.get(world.node_path)
    await world.api.patch(f"{world.node_path}/status", {**status})
    after_status = await world.api.get(world.node_path)

    assert "tried" not in (after_node.get("status", {}).get("capacity") or {})
    assert after_node["metadata"]["labels"]["tried"] == "yes"
    assert after_status["status"]["capacity"]["tried"] == "1"


def event_object(name: str) -> dict[str, object]:
    about = {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": about,
        "type": "Normal",
        "reason": "Tried",
        "message": "m",
        "count": 1,
    }


async def test_an_event_of_a_name_is_made_once_and_counted_up(world: ApiWorld) -> None:
    path, name = "/api/v1/namespaces/default/events", world.full("e")
    await world.api.create(path, event_object(name))

    with pytest.raises(ApiRefused) as refused:
        await world.api.create(path, event_object(name))
    await world.api.patch(f"{path}/{name}", {"count": 2})

    assert (refused.value.status, refused.value.reason) == (409, "AlreadyExists")
    assert (await world.api.get(f"{path}/{name}"))["count"] == 2


async def test_a_pod_that_changed_meanwhile_is_not_deleted(world: ApiWorld) -> None:
    made = await world.pod("a")
    same = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    await world.fail("a", "no room")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": same}

    with pytest.raises(ApiRefused) as refused:
        await world.api.delete(world.pod_path("a"), options)

    assert refused.value.status == 409


async def test_a_pod_that_failed_is_gone_when_it_is_deleted(world: ApiWorld) -> None:
    await world.pod("a")
    failed = await world.fail("a", "no room")
    same = {key: failed["metadata"][key] for key in ("uid", "resourceVersion")}

    await world.api.delete(world.pod_path("a"), {"preconditions": same})

    with pytest.raises(ApiRefused, match="not found"):
        await world.api.get(world.pod_path("a"))


async def test_a_pod_that_runs_is_marked_when_it_is_deleted_and_waits_for_its_kubelet(
    world: ApiWorld,
) -> None:
    await world.pod("a")
    status = {"status": {"phase": "Running"}}
    await world.api.patch(f"{world.pod_path('a')}/status", status)

    await world.api.delete(world.pod_path("a"), {})

    assert (await world.api.get(world.pod_path("a")))["metadata"]["deletionTimestamp"]


async def test_a_pod_that_runs_is_gone_at_once_where_no_grace_is_given(world: ApiWorld) -> None:
    await world.pod("a")

    await world.api.delete(world.pod_path("a"), {"gracePeriodSeconds": 0})

    with pytest.raises(ApiRefused, match="not found"):
        await world.api.get(world.pod_path("a"))


async def test_a_patch_of_an_unknown_kind_is_refused(world: ApiWorld) -> None:
    with pytest.raises(ApiRefused) as refused:
        await world.api.patch(world.node_path, {}, "application/nonsense+json")

    assert refused.value.status == 415
