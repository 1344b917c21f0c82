"""Claims from templates, their allocation, and their end: as pods come and go."""

import asyncio
import contextlib
from typing import Any

import pytest

from gpumanager.kube.errors import Object
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.claims.scheduler import PROTECTED
from gpumanager.sim.cluster.objects import Key, StatusError
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.sim.claims.claim_objects import (
    asked,
    claim,
    device_class,
    eight,
    gpu,
    node,
    pod,
    request,
    slice_of,
)

TEMPLATE: dict[str, Any] = {
    "metadata": {"name": "share", "namespace": "default"},
    "spec": {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"devices": {"requests": [request("gpu", 30, "2Gi")]}},
    },
}


class ClaimCluster:
    """An API server, two nodes of eight GPUs, a class and a template, and who looks after them."""

    def __init__(self) -> None:
        self.server = SimulatedApiServer()
        self.plane = ClaimControlPlane(self.server)

    async def start(self) -> None:
        for name in ("n0", "n1"):
            await self.server.create("nodes", node(name))
            await self.server.create("resourceslices", eight(name))
        await self.server.create("deviceclasses", device_class())
        await self.server.create("resourceclaimtemplates", TEMPLATE)

    async def pod(self, name: str, claim_name: str = "", **spec: Any) -> Object:
        template = "" if claim_name else "share"
        await self.server.create("pods", pod(name, claim_name, template, **spec))
        await self.plane.settle()
        return self.get("pods", name)

    async def end(self, name: str, phase: str = "Succeeded") -> None:
        patch = {"status": {"phase": phase}}
        await self.server.change(Key("pods", "default", name), patch, status=True)
        await self.plane.settle()

    def get(self, resource: str, name: str, namespace: str = "default") -> Object:
        return self.server.objects.get(Key(resource, namespace, name))

    def claims(self) -> list[Object]:
        return list(self.server.objects.list("resourceclaims"))


@pytest.fixture
async def cluster() -> ClaimCluster:
    made = ClaimCluster()
    await made.start()
    return made


def reason(pod: Object) -> str:
    return str(next(one["message"] for one in pod["status"]["conditions"]))


def devices(claim: Object) -> list[str]:
    return [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]


async def test_a_pod_gets_a_claim_from_its_template_and_then_a_node(cluster: ClaimCluster) -> None:
    made = await cluster.pod("p")

    (row,) = made["status"]["resourceClaimStatuses"]
    found = cluster.get("resourceclaims", row["resourceClaimName"])
    assert row["name"] == "gpu"
    assert found["metadata"]["name"].startswith("p-gpu-")
    assert found["metadata"]["labels"] == {"team": "a"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["finalizers"] == [PROTECTED]
    assert found["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-of-p"}]
    assert devices(found) == ["gpu-0"]
    assert made["spec"]["nodeName"] == "n0"


async def test_a_pod_waits_for_its_template_and_says_so_once(cluster: ClaimCluster) -> None:
    key = Key("resourceclaimtemplates", "default", "share")
    await cluster.server.remove(key)
    made = await cluster.pod("p")
    version = cluster.server.objects.version

    await cluster.plane.settle()
    assert cluster.server.objects.version == version
    assert reason(made) == 'pod has no resource claim for "gpu" yet'

    await cluster.server.create("resourceclaimtemplates", TEMPLATE)
    await cluster.plane.settle()
    assert cluster.get("pods", "p")["spec"]["nodeName"] == "n0"


async def test_a_generated_claim_ends_with_its_pod(cluster: ClaimCluster) -> None:
    await cluster.pod("p")

    await cluster.end("p")

    assert cluster.claims() == []


async def test_a_generated_claim_ends_with_a_pod_that_is_gone(cluster: ClaimCluster) -> None:
    await cluster.pod("p")

    await cluster.server.remove(Key("pods", "default", "p"))
    await cluster.plane.settle()

    assert cluster.claims() == []


async def test_a_user_s_claim_stays_and_is_free_again(cluster: ClaimCluster) -> None:
    await cluster.server.create("resourceclaims", claim(request("gpu", 30, "2Gi"), name="mine"))
    first, second = [await cluster.pod(name, "mine") for name in "ab"]

    found = cluster.get("resourceclaims", "mine")
    assert [one["name"] for one in found["status"]["reservedFor"]] == ["a", "b"]
    assert first["spec"]["nodeName"] == second["spec"]["nodeName"] == "n0"
    await cluster.end("a")
    assert devices(cluster.get("resourceclaims", "mine")) == ["gpu-0"]
    await cluster.end("b", "Failed")

    found = cluster.get("resourceclaims", "mine")
    assert found["status"] == {}
    assert not found["metadata"].get("finalizers")


async def test_a_claim_that_is_deleted_while_a_pod_uses_it_goes_with_the_pod(
    cluster: ClaimCluster,
) -> None:
    await cluster.server.create("resourceclaims", claim(request("gpu"), name="mine"))
    await cluster.pod("p", "mine")
    key = Key("resourceclaims", "default", "mine")

    await cluster.server.apply(lambda objects: objects.delete(key, {}))
    await cluster.plane.settle()
    assert cluster.get("resourceclaims", "mine")["metadata"]["deletionTimestamp"]
    waiting = await cluster.pod("late", "mine")
    assert reason(waiting) == 'resourceclaim "mine" is being deleted'
    await cluster.end("p")

    with pytest.raises(StatusError, match="not found"):
        cluster.get("resourceclaims", "mine")


async def test_pods_wait_where_there_is_no_room_and_go_on_where_there_is(
    cluster: ClaimCluster,
) -> None:
    made = [await cluster.pod(f"p{index}") for index in range(49)]

    bound = [one["metadata"]["name"] for one in made if one["spec"].get("nodeName")]
    assert len(bound) == 2 * 8 * 3
    assert reason(made[-1]) == "0/2 nodes are available: cannot allocate all claims"
    await cluster.end("p7")
    assert cluster.get("pods", "p48")["spec"]["nodeName"] == made[7]["spec"]["nodeName"]


async def test_the_node_with_the_better_alternative_is_taken(cluster: ClaimCluster) -> None:
    tight = [{"cel": {"expression": "device.attributes['gpu.tencent.com'].free <= 30"}}]
    options = [{"name": "tight", **asked(30, "2Gi", selectors=tight)}, {"name": "any", **asked(30)}]
    for name, free in (("n0", 100), ("n1", 30)):
        await cluster.server.remove(Key("resourceslices", "", eight(name)["metadata"]["name"]))
        await cluster.server.create("resourceslices", slice_of(name, gpu(0, free=free)))
    best = claim({"name": "gpu", "firstAvailable": options}, name="best")
    await cluster.server.create("resourceclaims", best)

    made = await cluster.pod("p", "best")

    assert made["spec"]["nodeName"] == "n1"


async def test_a_pod_goes_only_to_nodes_that_it_selects(cluster: ClaimCluster) -> None:
    made = await cluster.pod("p", nodeSelector={"kubernetes.io/hostname": "n1"})

    assert made["spec"]["nodeName"] == "n1"


async def test_a_claim_that_nobody_can_allocate_is_told_in_the_pod_s_status(
    cluster: ClaimCluster,
) -> None:
    wrong = {
        "class": (request("gpu", deviceClassName="none"), "device class none does not exist"),
        "count": (request("gpu", count=33), "cannot allocate all claims"),
        "amount": (request("gpu", 30, "2 GB"), "capacity memory: '2 GB' is no amount"),
    }
    for name, (asking, _) in wrong.items():
        await cluster.server.create("resourceclaims", claim(asking, name=name))

    said = {name: reason(await cluster.pod(f"p-{name}", name)) for name in wrong}

    assert all(cause in said[name] for name, (_, cause) in wrong.items()), said


async def test_several_claims_of_a_pod_are_allocated_together_or_not_at_all(
    cluster: ClaimCluster,
) -> None:
    for name, count in (("a", 4), ("b", 4), ("c", 5)):
        asking = claim(request("gpu", count=count), name=name)
        await cluster.server.create("resourceclaims", asking)
    used = [{"name": name, "resourceClaimName": name} for name in "ac"]
    both = pod("both", "a")
    both["spec"]["resourceClaims"] = used

    await cluster.server.create("pods", both)
    await cluster.plane.settle()
    assert reason(cluster.get("pods", "both")).endswith("cannot allocate all claims")
    assert not cluster.get("resourceclaims", "a").get("status")

    both = pod("fits", "a")
    both["spec"]["resourceClaims"] = [*used[:1], {"name": "b", "resourceClaimName": "b"}]
    await cluster.server.create("pods", both)
    await cluster.plane.settle()
    assert cluster.get("pods", "fits")["spec"]["nodeName"] == "n0"


async def test_an_allocation_names_its_node_and_its_configuration(cluster: ClaimCluster) -> None:
    opaque = {"opaque": {"driver": "gpu.tencent.com", "parameters": {"coreLimit": "60"}}}
    config = [{"requests": ["gpu"], **opaque}]
    asking = claim(request("gpu", 30, "2Gi"), name="mine", config=config)
    await cluster.server.create("resourceclaims", asking)

    await cluster.pod("p", "mine")

    allocation = cluster.get("resourceclaims", "mine")["status"]["allocation"]
    (result,) = allocation["devices"]["results"]
    assert (result["driver"], result["pool"]) == ("gpu.tencent.com", "n0")
    assert len(result["shareID"]) == 36
    assert allocation["devices"]["config"] == [{"source": "FromClaim", **opaque}]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]
    assert allocation["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": fields}]}


async def test_the_loop_follows_what_others_write(cluster: ClaimCluster) -> None:
    running = asyncio.create_task(cluster.plane.run())
    await cluster.server.create("pods", pod("p", template="share"))

    async with asyncio.timeout(60):
        while not cluster.get("pods", "p")["spec"].get("nodeName"):
            await cluster.server.changed_since(cluster.server.objects.version)

    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
