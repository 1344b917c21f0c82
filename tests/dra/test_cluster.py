"""What of claims and pods is at hand, and when the API server is asked all the same."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from gpumanager.dra.cluster import ClaimCluster
from gpumanager.grants.refusals import RetryLater
from gpumanager.ids import PodUID
from gpumanager.kube.access import Access
from gpumanager.kube.claims import NotAClaim
from gpumanager.kube.client import KubeClient
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.dra.claim_node import NODE, claim_item, pod_item, result
from tests.sim.claims.claim_objects import claim, request
from tests.waiting import until

CLAIM = Key("resourceclaims", "default", "a")


class World:
    """An API server with pod `p` that uses claim `a`, and the node's watches of both."""

    def __init__(self) -> None:
        self.server = SimulatedApiServer()

    async def start(self) -> None:
        await self.server.start()
        self.client = KubeClient(Access(self.server.url))
        self.cluster = ClaimCluster(self.client, NODE)
        pod = pod_item("p", {"main": [("a", "")]})
        pod["spec"]["nodeName"] = NODE
        self.pod = await self.server.create("pods", pod)
        self.claim = await self.server.create("resourceclaims", claim(request("gpu", 30), name="a"))
        await self.allocate("gpu-1")
        self.following = asyncio.create_task(self.cluster.run())

    async def stop(self) -> None:
        self.following.cancel()
        await asyncio.gather(self.following, return_exceptions=True)
        await self.client.close()
        await self.server.stop()

    async def allocate(self, device: str, pool: str = NODE) -> None:
        share = str(uuid.uuid4())
        found = result(device, 30, "1Gi") | {"pool": pool, "shareID": share}
        user = {"resource": "pods", "name": "p", "uid": self.pod["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [found]}}, "reservedFor": [user]}
        await self.server.change(CLAIM, {"status": status}, status=True)

    @property
    def uid(self) -> str:
        return str(self.claim["metadata"]["uid"])

    @property
    def asked(self) -> int:
        """How often the claim itself was read."""
        return sum(one.method == "GET" and one.key == CLAIM for one in self.server.calls)

    async def seen(self) -> None:
        known = self.cluster
        await until(lambda: known.claims.known.get(self.uid) and known.pods.known.get(self.pod_uid))
        await until(lambda: all(one.current for one in known._informers))

    @property
    def pod_uid(self) -> PodUID:
        return PodUID(self.pod["metadata"]["uid"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.start()
    yield found
    await found.stop()


async def test_a_claim_that_was_seen_is_not_asked_for(world: World) -> None:
    await world.seen()

    found = await world.cluster.claim("default", "a", world.uid)
    pod = await world.cluster.pod("default", "p", world.pod_uid)

    assert [one.name for one in found.devices] == ["gpu-1"]
    assert pod is not None
    assert pod.uses[0].claim == "a"
    assert world.asked == 0
    assert world.cluster.users(world.uid) == {world.pod_uid}
    assert world.cluster.requests() == {("default", "a"): ("gpu",)}


async def test_a_claim_whose_only_pod_has_ended_is_asked_for(world: World) -> None:
    """What was seen may be of before: the claim was freed and allocated again."""
    await world.seen()
    key, ended = Key("pods", "default", "p"), {"status": {"phase": "Succeeded"}}
    await world.server.change(key, ended, status=True)
    await until(lambda: (pod := world.cluster.pods.known.get(world.pod_uid)) and pod.ended)

    await world.cluster.claim("default", "a", world.uid)

    assert world.asked == 1


async def test_a_claim_that_was_unprepared_is_asked_for_until_the_watch_tells_of_it(
    world: World,
) -> None:
    """Its pod was deleted by force, and the next one got another GPU; both watches are behind."""
    await world.seen()
    world.following.cancel()
    await asyncio.gather(world.following, return_exceptions=True)
    world.cluster.unprepared(world.uid)
    freed = {"status": {"allocation": None, "reservedFor": None}}
    await world.server.change(CLAIM, freed, status=True)
    await world.allocate("gpu-2")

    found = await world.cluster.claim("default", "a", world.uid)

    assert [one.name for one in found.devices] == ["gpu-2"]
    world.following = asyncio.create_task(world.cluster.run())
    await until(lambda: world.cluster.allocated(world.uid) == found.devices)
    assert await world.cluster.claim("default", "a", world.uid) == found
    assert world.asked == 1


async def test_a_claim_that_was_not_seen_is_asked_for(world: World) -> None:
    world.following.cancel()

    found = await world.cluster.claim("default", "a", world.uid)
    pod = await world.cluster.pod("default", "p", world.pod_uid)

    assert found.uid == world.uid
    assert pod is not None
    assert world.asked == 1


async def test_another_claim_or_pod_of_the_name_is_not_mistaken(world: World) -> None:
    with pytest.raises(NotAClaim, match="not uid-old"):
        await world.cluster.claim("default", "a", "uid-old")
    with pytest.raises(NotAClaim, match="gone"):
        await world.cluster.claim("default", "none", "uid-none")
    assert await world.cluster.pod("default", "p", PodUID("uid-old")) is None
    assert await world.cluster.pod("default", "none", PodUID("uid-none")) is None


async def test_a_claim_that_is_allocated_elsewhere_is_not_kept(world: World) -> None:
    await world.seen()

    freed = {"status": {"allocation": None, "reservedFor": None}}
    await world.server.change(CLAIM, freed, status=True)
    await world.allocate("gpu-1", pool="n2")

    await until(lambda: len(world.cluster.claims.known) == 0)
    assert world.cluster.users(world.uid) == frozenset()


async def test_without_an_api_server_the_kubelet_is_to_ask_again(world: World) -> None:
    world.following.cancel()
    await world.server.stop()

    with pytest.raises(RetryLater):
        await world.cluster.claim("default", "a", world.uid)


async def test_wrong_parameters_of_a_claim_of_another_node_are_no_error_here(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    wrong = {"opaque": {"driver": "gpu.tencent.com", "parameters": {}}}
    found = result("gpu-1", 30, "1Gi")

    world.cluster.claims.put(claim_item("b", found | {"pool": "n2"}, config=[wrong]))
    assert "not understood" not in caplog.text

    world.cluster.claims.put(claim_item("b", found, config=[wrong]))
    assert "another kind" in caplog.text
    assert "uid-b" not in world.cluster.claims.known
