"""What holds of claims and slices at the API server, at the simulated one and a real one alike."""

import copy
from typing import Any

import pytest

from gpumanager.kube.client import MERGE
from gpumanager.kube.errors import ApiRefused
from tests.kube.api_world import ApiWorld, first
from tests.sim.claims.claim_objects import DRIVER, claim, gpu, request, slice_of

pytest_plugins = ["tests.kube.api_fixtures"]

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
SLICES = f"{GROUP}/resourceslices"
PROTECTION = "resource.kubernetes.io/delete-protection"


async def make(world: ApiWorld, path: str, item: dict[str, Any]) -> Any:
    """Under a name of the test's own; taken away at its end."""
    item = copy.deepcopy(item)
    item["metadata"].pop("uid", None)
    item["metadata"]["name"] = world.full(item["metadata"]["name"].replace("gpu.tencent.com", "s"))
    made = await world.api.create(path, item)
    world.added(f"{path}/{made['metadata']['name']}")
    return made


async def test_slices_are_listed_and_watched_by_node_and_driver(world: ApiWorld) -> None:
    mine = await make(world, SLICES, slice_of(world.node, gpu(0)))
    name = mine["metadata"]["name"]
    selector = f"spec.nodeName={world.node},spec.driver={DRIVER}"

    listed = await world.api.get(SLICES, fieldSelector=selector)
    other = await world.api.get(SLICES, fieldSelector=f"spec.nodeName={world.node},spec.driver=x")
    query = {"fieldSelector": selector, "resourceVersion": listed["metadata"]["resourceVersion"]}
    async with world.api.watch(SLICES, 30, **query) as events:
        pool = {**mine["spec"]["pool"], "generation": 2}
        await world.api.patch(f"{SLICES}/{name}", {"spec": {"pool": pool}}, MERGE)
        (event,) = await first(events, 1)

    assert [one["metadata"]["name"] for one in listed["items"]] == [name]
    assert (other["items"] or []) == []
    assert (event["type"], event["object"]["spec"]["pool"]["generation"]) == ("MODIFIED", 2)


async def test_a_claim_lives_from_its_making_to_the_end_of_its_protection(world: ApiWorld) -> None:
    made = await make(world, CLAIMS, claim(request("gpu", 30, "2Gi")))
    path, status = (
        f"{CLAIMS}/{made['metadata']['name']}",
        f"{CLAIMS}/{made['metadata']['name']}/status",
    )
    result = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}
    allocation = {"devices": {"results": [result]}}
    consumer = {"resource": "pods", "name": "p", "uid": "u"}

    await world.api.patch(path, {"metadata": {"finalizers": [PROTECTION]}})
    await world.api.patch(status, {"status": {"allocation": allocation, "reservedFor": [consumer]}})
    await world.api.delete(path, {})

    assert (await world.api.get(path))["metadata"]["deletionTimestamp"]
    await world.api.patch(status, {"status": {"allocation": None, "reservedFor": None}})
    await world.api.patch(path, {"metadata": {"finalizers": None}})

    with pytest.raises(ApiRefused, match="not found"):
        await world.api.get(path)


async def test_a_taint_without_a_time_gets_the_time_of_the_write(world: ApiWorld) -> None:
    taint = {"key": "gpu.tencent.com/unhealthy", "value": "true", "effect": "NoSchedule"}

    made = await make(world, SLICES, slice_of(world.node, gpu(0) | {"taints": [taint]}, gpu(1)))

    first_, second = made["spec"]["devices"]
    assert first_["taints"][0].pop("timeAdded")
    assert (first_["taints"], "taints" in second) == ([taint], False)


async def test_a_claim_s_name_is_generated_where_it_asks_for_that(world: ApiWorld) -> None:
    item = claim(request())
    item["metadata"] = {"generateName": f"{world.full('p')}-gpu-"}

    made = await world.api.create(CLAIMS, item)
    world.added(f"{CLAIMS}/{made['metadata']['name']}")

    assert len(made["metadata"]["name"]) == len(item["metadata"]["generateName"]) + 5
