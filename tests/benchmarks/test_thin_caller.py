"""The benchmark's own caller of gRPC: it gets what any other gets, and says where it does not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from thin_caller import FRAME, CallFailed, ThinCaller

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb


class Plugin:
    """Answers with what it was asked, and refuses where nothing was."""

    async def options(self, _request: pb.Empty, _context: Any) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions(pre_start_required=True)

    async def list_and_watch(
        self, _request: pb.Empty, _context: Any
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        yield pb.ListAndWatchResponse()

    async def preferred(
        self, request: pb.PreferredAllocationRequest, context: Any
    ) -> pb.PreferredAllocationResponse:
        raise NotImplementedError

    async def allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:
        if not request.container_requests:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "nothing is asked for")
        asked = ",".join(request.container_requests[0].devices_ids)
        answer = pb.ContainerAllocateResponse(envs={"asked": asked})
        return pb.AllocateResponse(container_responses=[answer])

    async def pre_start(
        self, request: pb.PreStartContainerRequest, context: Any
    ) -> pb.PreStartContainerResponse:
        raise NotImplementedError


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[ThinCaller]:
    server, path = grpc.aio.server(), tmp_path / "plugin.sock"
    server.add_generic_rpc_handlers((wire.device_plugin_handler(Plugin()),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    one = ThinCaller(path)
    yield one
    one.close()
    await server.stop(None)


async def allocated(caller: ThinCaller, *ids: str) -> str:
    asked = [pb.ContainerAllocateRequest(devices_ids=ids)] if ids else []
    request = pb.AllocateRequest(container_requests=asked).SerializeToString()
    seconds, answer = await asyncio.to_thread(
        caller.call, f"/{wire.DEVICE_PLUGIN}/{wire.ALLOCATE.name}", request
    )
    assert seconds > 0
    envs = pb.AllocateResponse.FromString(answer).container_responses[0].envs
    return str(envs["asked"])


async def test_it_is_answered_as_often_as_it_asks(caller: ThinCaller) -> None:
    answers = [await allocated(caller, f"device-{n}") for n in range(20)]

    assert answers == [f"device-{n}" for n in range(20)]


async def test_it_may_ask_and_be_told_more_than_a_frame_holds(caller: ThinCaller) -> None:
    ids = [f"device-{n}" for n in range(FRAME // 8)]

    assert await allocated(caller, *ids) == ",".join(ids)


async def test_a_call_that_is_refused_is_no_answer(caller: ThinCaller) -> None:
    with pytest.raises(CallFailed, match="Allocate"):
        await allocated(caller)
