"""PodResources over a real socket."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.kubelet.pod_resources import (
    CALL_ATTEMPTS,
    NamedHolder,
    PodResources,
    PodResourcesUnavailable,
)
from gpumanager.kubelet.wire import LIST, Context, alpha_handler, pod_resources_handler
from gpumanager.names import VCORE

BOUND = 120.0
"""Seconds after which a test is stuck; a busy machine may need many."""

TRAIN = pb.PodResources(
    namespace="team",
    name="train",
    containers=[
        pb.ContainerResources(
            name="main",
            devices=[pb.ContainerDevices(resource_name=VCORE, device_ids=[i]) for i in ("a", "b")],
        )
    ],
)
HOLDER = NamedHolder("team", "train", "main", VCORE, frozenset({"a", "b"}))


class Lister:
    """Knows one pod. refusals: how many calls it refuses first, as one that counts them."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals

    async def list(
        self, _request: pb.ListPodResourcesRequest, context: Context
    ) -> pb.ListPodResourcesResponse:
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return pb.ListPodResourcesResponse(pod_resources=[TRAIN])

    async def allocatable(
        self, _request: pb.AllocatableResourcesRequest, _context: Context
    ) -> pb.AllocatableResourcesResponse:
        rows = TRAIN.containers[0].devices
        return pb.AllocatableResourcesResponse(devices=rows)

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Context
    ) -> pb.GetPodResourcesResponse:
        if (request.pod_namespace, request.pod_name) != ("team", "train"):
            await context.abort(grpc.StatusCode.NOT_FOUND, "pod not found")
        return pb.GetPodResourcesResponse(pod_resources=TRAIN)


class Served:
    """A socket with these services."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server = grpc.aio.server()

    async def start(self, *handlers: Any) -> PodResources:
        self.server.add_generic_rpc_handlers(handlers)
        self.server.add_insecure_port(f"unix:{self.path}")
        await self.server.start()
        return PodResources(self.path, BOUND)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(tmp_path / "kubelet.sock")
    yield served
    await served.server.stop(0)


@pytest.fixture
async def socket(served: Served) -> Path:
    await served.start(pod_resources_handler(Lister()))
    return served.path


async def test_one_entry_per_device_is_one_holder(socket: Path) -> None:
    assert await PodResources(socket, BOUND).list() == (HOLDER,)


async def test_a_pod_is_found_by_its_name(socket: Path) -> None:
    assert await PodResources(socket, BOUND).get("team", "train") == (HOLDER,)


async def test_nobody_is_known_of_a_pod_that_is_not_there(socket: Path) -> None:
    assert await PodResources(socket, BOUND).get("team", "other") == ()


async def test_nobody_is_known_where_no_kubelet_answers(tmp_path: Path) -> None:
    assert await PodResources(tmp_path / "absent.sock").list() == ()


async def test_where_no_kubelet_answers_is_told_from_where_nobody_holds_anything(
    tmp_path: Path,
) -> None:
    with pytest.raises(PodResourcesUnavailable, match=r"absent\.sock"):
        await PodResources(tmp_path / "absent.sock").holders()


async def test_healthy_devices_are_those_of_the_resource(socket: Path) -> None:
    resources = PodResources(socket, BOUND)

    assert await resources.allocatable(VCORE) == {"a", "b"}
    assert await resources.allocatable("example.com/other") == frozenset()


async def test_a_kubelet_of_before_v1_is_asked_in_its_own_way(served: Served) -> None:
    resources = await served.start(alpha_handler(Lister().list))

    assert await resources.list() == (HOLDER,)
    assert await resources.get("team", "train") == ()


async def test_a_kubelet_with_nothing_but_list_is_not_asked_for_more(served: Served) -> None:
    resources = await served.start(pod_resources_handler(Lister(), [LIST]))

    assert await resources.list() == (HOLDER,)
    assert await resources.get("team", "train") == ()
    with pytest.raises(PodResourcesUnavailable) as raised:
        await resources.allocatable(VCORE)
    assert raised.value.unimplemented


async def test_a_call_refused_because_there_were_too_many_is_tried_again(served: Served) -> None:
    resources = await served.start(pod_resources_handler(Lister(refusals=CALL_ATTEMPTS - 1)))

    assert await resources.holders() == (HOLDER,)


async def test_a_kubelet_that_always_refuses_is_left_alone_in_the_end(served: Served) -> None:
    resources = await served.start(pod_resources_handler(Lister(refusals=10 * CALL_ATTEMPTS)))

    with pytest.raises(PodResourcesUnavailable, match="rejected by rate limit"):
        await resources.holders()


async def test_a_list_longer_than_grpcs_own_limit_is_received(served: Served) -> None:
    ids = [f"{n:060d}" for n in range(100_000)]
    rows = [pb.ContainerDevices(resource_name=VCORE, device_ids=ids)]
    container = pb.ContainerResources(name="main", devices=rows)
    large = pb.PodResources(name="train", namespace="team", containers=[container])

    async def many(_request: pb.ListPodResourcesRequest, _: Context) -> pb.ListPodResourcesResponse:
        return pb.ListPodResourcesResponse(pod_resources=[large])

    resources = await served.start(alpha_handler(many))

    (holder,) = await resources.holders()
    assert len(holder.ids) == len(ids)
