"""The device plugin over real sockets, with a kubelet that restarts as the real one does."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.deviceplugin.registration import RegistrationFailed, register
from gpumanager.deviceplugin.server import CannotServe, ResourceServer
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK, Bytes
from tests.deviceplugin.plugin_node import BOUND, GPU, Kubelet, RefusingKubelet, new_allocator


def sockets_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.sock"))


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(tmp_path)
    yield kubelet
    await kubelet.stop()


@pytest.fixture
def allocator(tmp_path: Path) -> Allocator:
    return new_allocator(tmp_path)


@pytest.fixture
async def plugin(tmp_path: Path, allocator: Allocator) -> AsyncIterator[DevicePlugin]:
    plugin = DevicePlugin(allocator, tmp_path, deadline=BOUND)
    yield plugin
    await plugin.stop()


async def test_nothing_is_registered_while_something_hinders_it(
    kubelet: Kubelet, allocator: Allocator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a runtime that would pass CDI devices over in silence."""
    hindered, asked = asyncio.Event(), asyncio.Event()

    async def obstacle() -> str:
        asked.set()
        return "" if hindered.is_set() else "knows nothing of CDI devices"

    plugin = DevicePlugin(allocator, tmp_path, deadline=BOUND, obstacle=obstacle, pause=0.01)
    await kubelet.start()
    await plugin.start()
    await asked.wait()
    assert sockets_in(tmp_path) == ["kubelet.sock"]

    hindered.set()
    await plugin.registered(BOUND)

    assert set(await kubelet.registered()) == {VCORE, VMEMORY}
    assert f"{VCORE} is not registered: knows nothing of CDI devices" in caplog.text
    await plugin.stop()


async def test_both_resources_are_registered_with_their_sockets(
    kubelet: Kubelet, plugin: DevicePlugin, tmp_path: Path
) -> None:
    await kubelet.start()

    await plugin.start()
    await plugin.registered(BOUND)

    endpoints = await kubelet.registered()
    assert set(endpoints) == {VCORE, VMEMORY}
    assert sockets_in(tmp_path) == sorted(["kubelet.sock", *endpoints.values()])
    assert endpoints[VCORE].startswith("vcore-")
    assert endpoints[VMEMORY].startswith("vmemory-")


async def test_sockets_of_a_killed_plugin_are_removed_and_those_of_a_living_one_left(
    kubelet: Kubelet, plugin: DevicePlugin, allocator: Allocator, tmp_path: Path
) -> None:
    await kubelet.start()
    other = ResourceServer(allocator, VMEMORY, tmp_path / "vmemory.sock")
    await other.start()
    for name in ("vcore.sock", "vcore-0bad.sock", "foreign.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / name))

    await plugin.start()
    endpoints = await kubelet.registered()

    kept = ["kubelet.sock", "foreign.sock", other.socket.name]
    assert sockets_in(tmp_path) == sorted([*kept, *endpoints.values()])
    await other.stop()


async def test_a_stopped_plugin_leaves_no_socket(
    kubelet: Kubelet, plugin: DevicePlugin, tmp_path: Path
) -> None:
    await kubelet.start()
    await plugin.start()
    await plugin.registered(BOUND)

    await plugin.stop()

    assert sockets_in(tmp_path) == ["kubelet.sock"]


async def test_the_devices_are_listed_once_and_again_after_a_change(
    kubelet: Kubelet, plugin: DevicePlugin, allocator: Allocator
) -> None:
    await plugin.start()
    await plugin.served(BOUND)
    async with kubelet.dial("vmemory.sock") as channel, asyncio.timeout(BOUND):
        stream = wire.DevicePluginClient(channel).list_and_watch()
        before = await anext(stream)

        allocator.node.mark_unhealthy([GPU.uuid])
        await plugin.refresh()
        after = await anext(stream)

    assert [device.ID for device in before.devices] == [f"1f3a9c02-m-{i}" for i in range(16)]
    assert {device.health for device in before.devices} == {"Healthy"}
    assert {device.health for device in after.devices} == {"Unhealthy"}
    assert [node.ID for node in before.devices[0].topology.nodes] == [1]


async def test_a_watch_ends_when_the_plugin_stops(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    await plugin.start()
    await plugin.served(BOUND)
    async with kubelet.dial("vcore.sock") as channel, asyncio.timeout(BOUND):
        stream = wire.DevicePluginClient(channel).list_and_watch()
        await anext(stream)

        await plugin.stop()

        with pytest.raises((StopAsyncIteration, grpc.aio.AioRpcError)):
            await anext(stream)


async def test_a_list_too_long_for_a_kubelet_is_told_at_the_start(tmp_path: Path) -> None:
    huge = replace(GPU, memory=Bytes(130_000 * MEMORY_BLOCK))

    with pytest.raises(CannotServe, match="a kubelet accepts 4194304"):
        await DevicePlugin(new_allocator(tmp_path, huge), tmp_path).start()


async def test_an_admission_goes_over_the_wire(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    await plugin.start()
    await plugin.served(BOUND)
    cores = [f"1f3a9c02-c-{i}" for i in range(100)]
    async with kubelet.dial("vcore.sock") as channel:
        client = wire.DevicePluginClient(channel)
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=cores, allocation_size=30
        )
        preferred = await client.preferred(
            pb.PreferredAllocationRequest(container_requests=[asked]), BOUND
        )
        ids = preferred.container_responses[0].deviceIDs

        answer = await client.allocate(
            pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)]),
            BOUND,
        )

    (container,) = answer.container_responses
    assert len(ids) == 30
    assert container.devices[0].host_path == "/dev/nvidia3"
    assert {device.permissions for device in container.devices} == {"rwm"}
    assert all(mount.read_only for mount in container.mounts)
    assert container.envs["VCUDA_GPUS"] == GPU.uuid


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (["nonsense"], "device ID 'nonsense' is not one of this node's"),
        ([], "no devices are asked for"),
    ],
)
async def test_a_refusals_text_reaches_the_kubelet(
    kubelet: Kubelet, plugin: DevicePlugin, ids: list[str], text: str
) -> None:
    await plugin.start()
    await plugin.served(BOUND)
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])

    async with kubelet.dial("vcore.sock") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await wire.DevicePluginClient(channel).allocate(request, BOUND)

    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert text in (raised.value.details() or "")


async def test_a_container_the_kubelet_does_not_know_yet_is_to_be_tried_again(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    await plugin.start()
    await plugin.served(BOUND)
    request = pb.PreStartContainerRequest(devices_ids=["1f3a9c02-c-0"])

    async with kubelet.dial("vcore.sock") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await wire.DevicePluginClient(channel).pre_start(request, BOUND)

    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_socket_path_that_is_too_long_is_refused(
    tmp_path: Path, allocator: Allocator
) -> None:
    directory = tmp_path / ("x" * 100)
    directory.mkdir()

    with pytest.raises(CannotServe, match="--device-plugin-path"):
        await DevicePlugin(allocator, directory).start()


async def test_a_registration_nobody_answers_says_where_it_was_tried(tmp_path: Path) -> None:
    with pytest.raises(RegistrationFailed, match="no kubelet listens there"):
        await register(tmp_path / "kubelet.sock", VCORE, tmp_path / "vcore.sock", 2.0)


async def test_a_kubelets_refusal_is_told_in_its_words(tmp_path: Path) -> None:
    kubelet = RefusingKubelet(tmp_path, {VCORE})
    await kubelet.start()
    try:
        with pytest.raises(RegistrationFailed, match=f"{VCORE} is invalid"):
            await register(kubelet.socket, VCORE, tmp_path / "vcore.sock", 2.0)
    finally:
        await kubelet.stop()
