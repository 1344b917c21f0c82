"""PodResources over a real socket: the CDI devices of claims, and what a kubelet answers at all."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.kubelet.pod_resources import PodResources, PodResourcesUnavailable, probe
from gpumanager.kubelet.wire import Context, pod_resources_handler

BOUND = 120.0
"""Seconds after which a test is stuck; a busy machine may need many."""
NOT_FOUND = grpc.StatusCode.UNKNOWN, "pod x in namespace y not found"


class Kubelet:
    """Knows one pod with a claim. refusals: how many calls of `List` it refuses first, as one that
    counts them. get: how it refuses `Get`."""

    def __init__(self, refusals: int = 0, get: tuple[grpc.StatusCode, str] = NOT_FOUND) -> None:
        self.refusals, self.listed, self._get = refusals, 0, get

    async def list(
        self, _request: pb.ListPodResourcesRequest, context: Context
    ) -> pb.ListPodResourcesResponse:
        self.listed += 1
        if self.listed <= self.refusals:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        devices = [pb.CDIDevice(name="k=a"), pb.CDIDevice(name="k=b")]
        resource = pb.ClaimResource(cdi_devices=devices)
        claim = pb.DynamicResource(claim_resources=[resource])
        containers = [pb.ContainerResources(name="main", dynamic_resources=[claim])]
        pods = [pb.PodResources(namespace="team", name="train", containers=containers)]
        return pb.ListPodResourcesResponse(pod_resources=pods)

    async def get(
        self, _request: pb.GetPodResourcesRequest, context: Context
    ) -> pb.GetPodResourcesResponse:
        await context.abort(*self._get)
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


async def test_the_cdi_devices_of_claims_are_listed(serve: Serve) -> None:
    assert await PodResources(await serve(Kubelet()), BOUND).cdi_devices() == {"k=a", "k=b"}


async def test_where_no_kubelet_answers_is_told_from_where_nobody_holds_anything(
    tmp_path: Path,
) -> None:
    with pytest.raises(PodResourcesUnavailable, match=r"absent\.sock"):
        await PodResources(tmp_path / "absent.sock").cdi_devices()
    with pytest.raises(PodResourcesUnavailable, match=r"absent\.sock"):
        await probe(tmp_path / "absent.sock")


async def test_a_call_refused_because_there_were_too_many_is_no_answer(serve: Serve) -> None:
    resources = PodResources(await serve(Kubelet(refusals=1)), BOUND)

    with pytest.raises(PodResourcesUnavailable, match="rejected by rate limit"):
        await resources.cdi_devices()
    assert await resources.cdi_devices() == {"k=a", "k=b"}


@pytest.mark.parametrize(
    ("get", "answers"),
    [
        (NOT_FOUND, "List, Get"),
        ((grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled"), "List"),
        ((grpc.StatusCode.UNIMPLEMENTED, "unknown method Get"), "List"),
    ],
)
async def test_a_refusal_tells_what_is_there(
    serve: Serve, get: tuple[grpc.StatusCode, str], answers: str
) -> None:
    kubelet = Kubelet(get=get)

    assert await probe(await serve(kubelet)) == answers
    assert kubelet.listed == 0
