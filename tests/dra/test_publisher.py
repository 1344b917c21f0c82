"""The node's slice in the API server: as it should be, by as few writes as that takes."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from gpumanager.dra.publisher import SlicePublisher
from gpumanager.dra.slice import NodeGpus, slice_name
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.placement.values import FreeGpu, FreeGpus
from tests.deviceplugin.admission.admission_node import BLOCKS, gpus

NAME = slice_name("n1")


class OneSliceApi:
    """Has a node and, once made, a slice. tell: what a watch would bring."""

    def __init__(self) -> None:
        self.slice: Any = None
        self.node_uid = "uid-n1"
        self.version = 10
        self.writes: list[str] = []
        self.tell: Callable[[Any], None] = lambda _: None
        self.away = False

    async def get(self, path: str) -> Any:
        assert path == "/api/v1/nodes/n1"
        if self.away:
            raise ApiUnavailable("away")
        return {"metadata": {"uid": self.node_uid}}

    async def create(self, _path: str, body: Any) -> Any:
        if self.slice is not None:
            raise ApiRefused("create", 409, "AlreadyExists", NAME)
        return self._written("create", body)

    async def patch(self, _path: str, body: Any) -> Any:
        if self.slice is None:
            raise ApiRefused("patch", 404, "NotFound", NAME)
        return self._written("patch", body)

    def _written(self, how: str, body: Any) -> Any:
        self.writes.append(how)
        self.version += 1
        self.slice = copy.deepcopy(body)
        self.slice["metadata"]["resourceVersion"] = str(self.version)
        for device in self.slice["spec"]["devices"]:
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", f"2026-11-20T10:00:{self.version}Z")
        return copy.deepcopy(self.slice)


class Node:
    def __init__(self) -> None:
        self.topology: Topology = gpus(2)
        self.held: dict[GpuUUID, int] = {}
        self.ill: set[GpuUUID] = set()
        self.cordoned: set[GpuUUID] | None = set()
        self.api = OneSliceApi()
        api: Any = self.api
        self.judged = asyncio.Event()
        self.judged.set()
        self.publisher = SlicePublisher(api, "n1", self.gpus, judged=self.judged)

    async def gpus(self) -> NodeGpus:
        free = {
            gpu.uuid: FreeGpu(100 - (held := self.held.get(gpu.uuid, 0)), BLOCKS, held > 0, BLOCKS)
            for gpu in self.topology.gpus
        }
        return NodeGpus(self.topology, FreeGpus(free), unhealthy=self.ill, cordoned=self.cordoned)

    def began(self) -> dict[str, str]:
        """When the taint of each GPU began, by the GPU's UUID."""
        return {
            str(device["attributes"]["uuid"]["string"]): str(taint["timeAdded"])
            for device in self.api.slice["spec"]["devices"]
            for taint in device.get("taints", ())
        }

    def first(self) -> str:
        device = self.api.slice["spec"]["devices"][0]
        return str(device["attributes"]["uuid"]["string"])


@pytest.fixture
def node() -> Node:
    return Node()


async def test_it_is_written_once_and_again_only_after_a_change(node: Node) -> None:
    for _ in range(3):
        await node.publisher.publish()
    assert node.api.writes == ["create"]

    node.held[node.topology.gpus[1].uuid] = 30
    for _ in range(3):
        await node.publisher.publish()

    assert node.api.writes == ["create", "patch"]
    assert node.first() == node.topology.gpus[1].uuid
    assert node.publisher.writes == 2


def next_agent(node: Node) -> Node:
    found = Node()
    found.api = node.api
    api: Any = node.api
    found.publisher = SlicePublisher(api, "n1", found.gpus, judged=found.judged)
    found.publisher.published.put(copy.deepcopy(node.api.slice))
    return found


async def test_a_slice_of_before_is_taken_over(node: Node) -> None:
    await node.publisher.publish()

    await next_agent(node).publisher.publish()

    assert node.api.writes == ["create"]


async def test_taints_of_before_stay_until_the_health_of_the_gpus_is_known(node: Node) -> None:
    first, second = (gpu.uuid for gpu in node.topology.gpus)
    node.ill.add(first)
    await node.publisher.publish()
    began = node.began()
    after = next_agent(node)
    after.judged.clear()

    after.held[second] = 30
    after.ill.add(second)
    await after.publisher.publish()
    assert set(node.began()) == {first, second}
    assert node.began()[first] == began[first]

    after.judged.set()
    await after.publisher.publish()
    assert set(node.began()) == {second}


async def test_a_cordon_of_before_stays_until_the_node_s_annotation_is_read(node: Node) -> None:
    first, second = (gpu.uuid for gpu in node.topology.gpus)
    node.cordoned = {first}
    await node.publisher.publish()
    after = next_agent(node)
    after.cordoned = None

    after.held[second] = 30
    await after.publisher.publish()
    assert set(node.began()) == {first}

    after.cordoned = set()
    await after.publisher.publish()
    assert not node.began()


async def test_it_is_written_again_when_the_kubelet_has_deleted_it(node: Node) -> None:
    await node.publisher.publish()
    deleted, node.api.slice = node.api.slice, None
    node.publisher.published.remove(deleted)

    await node.publisher.publish()

    assert node.api.writes == ["create", "create"]


async def test_it_belongs_to_the_node_as_it_is_registered_now(node: Node) -> None:
    """The garbage collector deletes a slice whose node is gone, also the one written after it."""
    await node.publisher.publish()
    deleted, node.api.slice, node.api.node_uid = node.api.slice, None, "uid-n1-again"
    node.publisher.published.remove(deleted)

    await node.publisher.publish()

    (owner,) = node.api.slice["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-n1-again"


async def test_a_deletion_that_is_not_known_yet_is_no_error(node: Node) -> None:
    await node.publisher.publish()
    node.api.slice = None
    node.held[node.topology.gpus[1].uuid] = 30

    await node.publisher.publish()

    assert node.api.writes == ["create", "create"]


async def test_a_slice_that_is_not_known_yet_is_no_error(node: Node) -> None:
    await node.publisher.publish()
    node.publisher.published.object = None
    node.held[node.topology.gpus[1].uuid] = 30

    await node.publisher.publish()

    assert node.api.writes == ["create", "patch"]


async def test_what_the_watch_brings_late_is_passed_over(node: Node) -> None:
    await node.publisher.publish()
    late = copy.deepcopy(node.api.slice)
    node.held[node.topology.gpus[1].uuid] = 30
    await node.publisher.publish()

    node.publisher.published.put(late)
    node.publisher.published.remove(late)
    await node.publisher.publish()

    assert node.api.writes == ["create", "patch"]


async def test_what_somebody_else_wrote_is_put_right(node: Node) -> None:
    await node.publisher.publish()
    theirs = copy.deepcopy(node.api.slice)
    theirs["spec"]["devices"].pop()
    theirs["metadata"]["resourceVersion"] = "99"
    node.publisher.published.put(theirs)

    await node.publisher.publish()

    assert node.api.writes == ["create", "patch"]
    assert len(node.api.slice["spec"]["devices"]) == 2


async def test_the_time_that_the_server_adds_to_a_taint_is_no_difference(node: Node) -> None:
    node.ill.add(node.topology.gpus[0].uuid)

    await node.publisher.publish()
    await node.publisher.publish()

    assert node.api.writes == ["create"]
    assert "timeAdded" in str(node.api.slice)
    node.ill.clear()
    await node.publisher.publish()
    assert "taints" not in str(node.api.slice)


@pytest.mark.parametrize("deleted", [False, True], ids=["changed", "deleted by the kubelet"])
async def test_a_taint_keeps_its_time_whatever_else_changes(node: Node, deleted: object) -> None:
    """Who tolerates it for a minute would be evicted a minute after the last change, or never."""
    first, second = (gpu.uuid for gpu in node.topology.gpus)
    node.ill.add(first)
    await node.publisher.publish()
    began = node.began()
    if deleted:
        node.publisher.published.remove(node.api.slice)
        node.api.slice = None

    node.ill.add(second)
    await node.publisher.publish()

    assert node.began()[first] == began[first] != node.began()[second]
    node.ill.remove(first)
    await node.publisher.publish()
    node.ill.add(first)
    await node.publisher.publish()
    assert node.began()[first] != began[first]


async def test_an_api_server_that_is_away_is_told(node: Node) -> None:
    node.api.away = True

    with pytest.raises(ApiUnavailable):
        await node.publisher.publish()

    assert node.api.writes == []
