"""PodResources over a real socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.kubelet.pod_resources import NamedHolder, PodResources
from gpumanager.kubelet.wire import Context, pod_resources_handler
from gpumanager.names import VCORE

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
    """Knows one pod."""

    async def list(
        self, _request: pb.ListPodResourcesRequest, _context: Context
    ) -> pb.ListPodResourcesResponse:
        return pb.ListPodResourcesResponse(pod_resources=[TRAIN])

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Context
    ) -> pb.GetPodResourcesResponse:
        if (request.pod_namespace, request.pod_name) != ("team", "train"):
            await context.abort(grpc.StatusCode.NOT_FOUND, "pod not found")
        return pb.GetPodResourcesResponse(pod_resources=TRAIN)


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncIterator[Path]:
    path = tmp_path / "kubelet.sock"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((pod_resources_handler(Lister()),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    yield path
    await server.stop(0)


async def test_one_entry_per_device_is_one_holder(socket: Path) -> None:
    assert await PodResources(socket).list() == (HOLDER,)


async def test_a_pod_is_found_by_its_name(socket: Path) -> None:
    assert await PodResources(socket).get("team", "train") == (HOLDER,)


async def test_nobody_is_known_of_a_pod_that_is_not_there(socket: Path) -> None:
    assert await PodResources(socket).get("team", "other") == ()


async def test_nobody_is_known_where_no_kubelet_answers(tmp_path: Path) -> None:
    assert await PodResources(tmp_path / "absent.sock").list() == ()
