"""What the simulated kubelet asks an API server about claims and tells it, on the wire."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gpumanager.http_server import BoundedServer
from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.kubelet.dra.api import HttpNodeApi
from gpumanager.sim.manifest.pods import Pod

POD = Pod("default", "p", (), uid="pod-uid")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Recorder:
    """Answers with what it has, and remembers each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.found: dict[str, Any] = {}

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.asked.append((request.method, request.path, dict(request.query)))
        found = self.found.get(request.path)
        if found is None:
            status = {"reason": "NotFound", "message": "not found"}
            return web.json_response(status, status=404)
        return web.Response(text=json.dumps(found))


@pytest.fixture
async def recorder() -> AsyncIterator[tuple[Recorder, HttpNodeApi]]:
    recorder = Recorder()
    server = BoundedServer(recorder.answer)
    port = await server.start("127.0.0.1", 0)
    async with KubeClient(Access(f"http://127.0.0.1:{port}")) as client:
        yield recorder, HttpNodeApi(client, "node-1")
    await server.stop()


async def test_a_claim_is_read_by_its_namespace_and_name(
    recorder: tuple[Recorder, HttpNodeApi],
) -> None:
    server, api = recorder
    server.found[f"{CLAIMS}/one"] = {"metadata": {"name": "one"}}

    assert await api.claim("default", "one") == {"metadata": {"name": "one"}}
    with pytest.raises(ApiRefused, match="404 NotFound"):
        await api.claim("default", "two")


async def test_slices_are_deleted_together_by_node_and_driver(
    recorder: tuple[Recorder, HttpNodeApi],
) -> None:
    server, api = recorder
    path = "/apis/resource.k8s.io/v1/resourceslices"
    server.found[path] = {}

    await api.delete_slices("")
    await api.delete_slices("gpu.tencent.com")

    both = "spec.nodeName=node-1,spec.driver=gpu.tencent.com"
    assert server.asked == [
        ("DELETE", path, {"fieldSelector": "spec.nodeName=node-1"}),
        ("DELETE", path, {"fieldSelector": both}),
    ]


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[SimulatedApiServer, HttpNodeApi]]:
    server = SimulatedApiServer()
    await server.start()
    async with KubeClient(Access(server.url)) as client:
        yield server, HttpNodeApi(client, "node-1")
    await server.stop()


async def test_an_event_of_a_pod_is_made_once_and_counted(
    cluster: tuple[SimulatedApiServer, HttpNodeApi],
) -> None:
    server, api = cluster

    for _ in range(3):
        await api.event(POD, "FailedPrepareDynamicResources", "why")
    await api.event(POD, "FailedPrepareDynamicResources", "why else")

    made = list(server.objects.list("events"))
    assert sorted((one["message"], one["count"]) for one in made) == [("why", 3), ("why else", 1)]
    assert {one["type"] for one in made} == {"Warning"}
    assert {one["source"]["component"] for one in made} == {"kubelet"}
    assert {one["involvedObject"]["uid"] for one in made} == {POD.uid}


async def test_health_is_written_into_the_statuses_of_containers_that_stay_as_they_are(
    cluster: tuple[SimulatedApiServer, HttpNodeApi],
) -> None:
    server, api = cluster
    statuses = [{"name": "a", "restartCount": 2}, {"name": "b", "restartCount": 0}]
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {}}
    await server.create("pods", {**pod, "status": {"containerStatuses": statuses}})
    row = {"name": "claim:gpu", "resources": [{"resourceID": "kind=1", "health": "Healthy"}]}

    await api.report_health(POD, {"a": [row], "new": [row]})

    (stored,) = server.objects.list("pods")
    found = {one["name"]: one for one in stored["status"]["containerStatuses"]}
    assert found["a"] == {"name": "a", "restartCount": 2, "allocatedResourcesStatus": [row]}
    assert found["b"] == statuses[1]
    assert found["new"] == {"name": "new", "allocatedResourcesStatus": [row]}
