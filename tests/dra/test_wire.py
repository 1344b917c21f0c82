"""The DRA services on a real socket, under every name that a kubelet may choose."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from gpumanager.dra import wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.dra.api import pluginregistration_v1_pb2 as registration_pb


class EchoDriver:
    """Prepares one device named as the claim; its health stream ends after one list."""

    def __init__(self) -> None:
        self.told: list[registration_pb.RegistrationStatus] = []

    async def get_info(
        self, _request: registration_pb.InfoRequest, _context: wire.Context
    ) -> registration_pb.PluginInfo:
        return registration_pb.PluginInfo(type=wire.PLUGIN_TYPE, name="echo")

    async def notify(
        self, request: registration_pb.RegistrationStatus, _context: wire.Context
    ) -> registration_pb.RegistrationStatusResponse:
        self.told.append(request)
        return registration_pb.RegistrationStatusResponse()

    async def prepare(
        self, request: pb.NodePrepareResourcesRequest, _context: wire.Context
    ) -> pb.NodePrepareResourcesResponse:
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].devices.add(device_name=claim.name, share_id="s")
        return answer

    async def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, _context: wire.Context
    ) -> pb.NodeUnprepareResourcesResponse:
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].error = f"{claim.name} stays"
        return answer

    async def watch(
        self, _request: health_pb.NodeWatchResourcesRequest, _context: wire.Context
    ) -> AsyncIterator[health_pb.NodeWatchResourcesResponse]:
        answer = health_pb.NodeWatchResourcesResponse()
        answer.devices.add(health=health_pb.UNHEALTHY, message="Xid 79")
        yield answer


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Path, EchoDriver]]:
    driver = EchoDriver()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            wire.registration_handler(driver),
            *wire.plugin_handlers(driver, driver),
        )
    )
    socket = tmp_path / "dra.sock"
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    yield socket, driver
    await server.stop(None)


async def test_a_kubelet_asks_a_plugin_for_its_name_and_tells_it_the_outcome(
    served: tuple[Path, EchoDriver],
) -> None:
    socket, driver = served

    async with wire.dial(socket) as channel:
        client = wire.DRAPluginClient(channel)
        info = await client.get_info(5)
        await client.notify(registration_pb.RegistrationStatus(plugin_registered=True), 5)

    assert (info.type, info.name) == ("DRAPlugin", "echo")
    assert [one.plugin_registered for one in driver.told] == [True]


@pytest.mark.parametrize("version", wire.PLUGIN_SERVICES)
async def test_every_version_of_the_plugin_api_is_served(
    served: tuple[Path, EchoDriver], version: str
) -> None:
    claim = pb.Claim(namespace="ns", uid="u", name="c")

    async with wire.dial(served[0]) as channel:
        client = wire.DRAPluginClient(channel, version)
        prepared = await client.prepare(pb.NodePrepareResourcesRequest(claims=[claim]), 5)
        unprepared = await client.unprepare(pb.NodeUnprepareResourcesRequest(claims=[claim]), 5)

    assert [one.device_name for one in prepared.claims["u"].devices] == ["c"]
    assert unprepared.claims["u"].error == "c stays"


@pytest.mark.parametrize("version", wire.HEALTH_SERVICES)
async def test_every_version_of_the_health_api_is_served(
    served: tuple[Path, EchoDriver], version: str
) -> None:
    async with wire.dial(served[0]) as channel:
        client = wire.DRAPluginClient(channel, health=version)
        answers = [one async for one in client.watch()]

    assert [one.devices[0].message for one in answers] == ["Xid 79"]
