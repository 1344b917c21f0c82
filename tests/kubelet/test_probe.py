"""What a kubelet's PodResources can tell, by how it refuses to tell of a pod that is not there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.kubelet.pod_resources import ProbeFailed, Speaks, probe
from gpumanager.kubelet.wire import Context, pod_resources_handler


class Kubelet:
    """Refuses `Get` in one way; whoever calls `List` is found out."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.listed = 0
        self._refusal = code, details

    async def list(
        self, _request: pb.ListPodResourcesRequest, _context: Context
    ) -> pb.ListPodResourcesResponse:
        self.listed += 1
        return pb.ListPodResourcesResponse()

    async def get(
        self, _request: pb.GetPodResourcesRequest, context: Context
    ) -> pb.GetPodResourcesResponse:
        await context.abort(*self._refusal)
        raise AssertionError("abort raises")

    async def allocatable(
        self, _request: pb.AllocatableResourcesRequest, _context: Context
    ) -> pb.AllocatableResourcesResponse:
        return pb.AllocatableResourcesResponse()


Serve = Callable[[Kubelet], Awaitable[Path]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    servers: list[Any] = []

    async def start(kubelet: Kubelet) -> Path:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((pod_resources_handler(kubelet),))
        server.add_insecure_port(f"unix:{tmp_path / 'kubelet.sock'}")
        await server.start()
        servers.append(server)
        return tmp_path / "kubelet.sock"

    yield start
    for server in servers:
        await server.stop(0)


@pytest.mark.parametrize(
    ("code", "details", "speaks"),
    [
        (grpc.StatusCode.UNKNOWN, "pod x in namespace y not found", Speaks.LIST_AND_GET),
        (grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled", Speaks.LIST),
        (grpc.StatusCode.UNIMPLEMENTED, "unknown method Get", Speaks.LIST),
    ],
)
async def test_a_refusal_tells_what_is_there(
    serve: Serve, code: grpc.StatusCode, details: str, speaks: Speaks
) -> None:
    kubelet = Kubelet(code, details)

    assert await probe(await serve(kubelet)) is speaks
    assert kubelet.listed == 0


async def test_where_nobody_listens_nothing_is_known(tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="does not answer"):
        await probe(tmp_path / "absent.sock")
