"""The official client before the simulated API server: what it takes for an API server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client, watch

from tests.kube.api_world import STRATEGIC, ApiWorld, pod_object

pytest_plugins = ["tests.kube.api_fixtures"]


@pytest.fixture
def api(simulated: ApiWorld) -> client.CoreV1Api:
    assert simulated.simulated
    configuration = client.Configuration(host=simulated.simulated.url)
    return client.CoreV1Api(client.ApiClient(configuration))


async def asked(question: Callable[[], Any]) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(question), 120)


async def test_it_makes_lists_changes_and_deletes_pods(
    api: client.CoreV1Api, simulated: ApiWorld
) -> None:
    item = pod_object("a", simulated.node)
    patch = {"metadata": {"annotations": {"tried": "yes"}}}

    made = await asked(lambda: api.create_namespaced_pod("default", item))
    after = await asked(lambda: api.patch_namespaced_pod("a", "default", patch))
    listed = await asked(lambda: api.list_pod_for_all_namespaces(field_selector=simulated.selector))
    await asked(lambda: api.delete_namespaced_pod("a", "default", grace_period_seconds=0))

    assert listed.items[0].metadata.uid == made.metadata.uid
    assert after.metadata.annotations == {"tried": "yes"}
    with pytest.raises(client.ApiException) as refused:
        await asked(lambda: api.read_namespaced_pod("a", "default"))
    assert refused.value.status == 404


async def test_it_watches_pods(api: client.CoreV1Api, simulated: ApiWorld) -> None:
    await simulated.pod("a")
    version = await simulated.version()

    def first() -> list[tuple[str, str]]:
        watcher, found = watch.Watch(), list[tuple[str, str]]()
        for event in watcher.stream(
            api.list_pod_for_all_namespaces,
            field_selector=simulated.selector,
            resource_version=version,
            timeout_seconds=120,
        ):
            found.append((event["type"], event["object"].metadata.name))
            watcher.stop()
        return found

    watching = asyncio.create_task(asked(first))
    await asyncio.sleep(0.1)
    await simulated.pod("b")

    assert await watching == [("ADDED", simulated.full("b"))]


async def test_it_sets_a_condition_of_a_node(api: client.CoreV1Api, simulated: ApiWorld) -> None:
    condition = {"type": "GpusHealthy", "status": "True", "reason": "R", "message": "m"}
    body = {"status": {"conditions": [condition]}}

    await asked(lambda: api.patch_node_status(simulated.node, body, _content_type=STRATEGIC))
    node = await asked(lambda: api.read_node(simulated.node))

    assert [one.type for one in node.status.conditions] == ["GpusHealthy"]
