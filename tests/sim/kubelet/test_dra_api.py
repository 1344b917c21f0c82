"""What the simulated kubelet asks an API server about claims and tells it, on the wire."""

from collections.abc import AsyncIterator

import pytest

from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.manifest.pods import Pod

POD = Pod("default", "p", (), uid="pod-uid")


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[SimulatedApiServer, NodeApi]]:
    server = SimulatedApiServer()
    await server.start()
    async with KubeClient(Access(server.url)) as client:
        yield server, NodeApi(client, "node-1")
    await server.stop()


async def test_a_claim_is_read_by_its_namespace_and_name(
    cluster: tuple[SimulatedApiServer, NodeApi],
) -> None:
    server, api = cluster
    await server.create("resourceclaims", {"metadata": {"name": "one", "namespace": "default"}})

    assert (await api.claim("default", "one"))["metadata"]["name"] == "one"
    with pytest.raises(ApiRefused, match="404 NotFound"):
        await api.claim("other", "one")


async def test_slices_are_deleted_together_by_node_and_driver(
    cluster: tuple[SimulatedApiServer, NodeApi],
) -> None:
    server, api = cluster
    for name, node, driver in (("a", "node-1", "x"), ("b", "node-1", "y"), ("c", "node-2", "x")):
        spec = {"nodeName": node, "driver": driver}
        await server.create("resourceslices", {"metadata": {"name": name}, "spec": spec})

    def left() -> list[str]:
        return [one["metadata"]["name"] for one in server.objects.list("resourceslices")]

    await api.delete_slices("x")
    assert left() == ["b", "c"]
    await api.delete_slices("")
    assert left() == ["c"]


async def test_an_event_of_a_pod_is_made_once(
    cluster: tuple[SimulatedApiServer, NodeApi],
) -> None:
    server, api = cluster

    for _ in range(3):
        await api.event(POD, "FailedPrepareDynamicResources", "why")
    await api.event(POD, "FailedPrepareDynamicResources", "why else")

    made = list(server.objects.list("events"))
    assert sorted(one["message"] for one in made) == ["why", "why else"]
    assert {one["type"] for one in made} == {"Warning"}
    assert {one["source"]["component"] for one in made} == {"kubelet"}
    assert {one["involvedObject"]["uid"] for one in made} == {POD.uid}


async def test_health_is_written_into_the_statuses_of_containers_that_stay_as_they_are(
    cluster: tuple[SimulatedApiServer, NodeApi],
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
