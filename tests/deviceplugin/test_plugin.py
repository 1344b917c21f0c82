"""The device plugin over real sockets, with a kubelet that restarts as the real one does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gpumanager.allocator.allocator import Allocator
from gpumanager.allocator.journal_file import JournalFile
from gpumanager.allocator.kubelet_books import KubeletBooks
from gpumanager.allocator.surroundings import Surroundings
from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.deviceplugin.register import RegistrationFailed, register
from gpumanager.deviceplugin.server import CannotServe, ResourceServer
from gpumanager.deviceplugin.watch import Sockets
from gpumanager.gpu.values import Gpu, GpuUUID, topology
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import GIB, MEMORY_BLOCK, Bytes
from gpumanager.virtual.values import AllocationID, Limit
from gpumanager.volume.values import DriverVolumes

BOUND = 10.0
"""Seconds after which a test is stuck."""

GPU = Gpu(
    index=0,
    minor=3,
    uuid=GpuUUID("GPU-1f3a9c02-0000-0000-0000-000000000000"),
    bus_id="0000:01:00.0",
    model="Tesla T4",
    memory=Bytes(4 * GIB),
    numa_node=1,
)


class Nowhere:
    """A virtual manager that serves nobody."""

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        return Path("/vm") / allocation

    async def close(self, allocation: AllocationID) -> None: ...

    def allocations(self) -> tuple[AllocationID, ...]:
        return ()

    def limits(self, allocation: AllocationID) -> tuple[Limit, ...]:
        return ()


class Kubelet:
    """The registration service of a kubelet ≥ 1.36: it dials back before Register returns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "kubelet.sock"
        self.requests: asyncio.Queue[pb.RegisterRequest] = asyncio.Queue()
        self.server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Deletes every socket first, as the real one does."""
        for path in self.directory.glob("*.sock"):
            path.unlink()
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers((wire.registration_handler(self.register),))
        self.server.add_insecure_port(f"unix:{self.socket}")
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)
            self.server = None

    async def register(self, request: pb.RegisterRequest, context: wire.Context) -> pb.Empty:
        async with self.dial(request.endpoint) as channel:
            options = await wire.DevicePluginClient(channel).options(BOUND)
        if options != request.options:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "options differ")
        await self.requests.put(request)
        return pb.Empty()

    async def registered(self) -> dict[str, str]:
        """The next two registrations: resource and endpoint."""
        async with asyncio.timeout(BOUND):
            requests = [await self.requests.get() for _ in range(2)]
        return {request.resource_name: request.endpoint for request in requests}

    def dial(self, endpoint: str) -> grpc.aio.Channel:
        return wire.dial(self.directory / endpoint)


class RefusingKubelet(Kubelet):
    """Takes no resource."""

    async def register(self, request: pb.RegisterRequest, context: wire.Context) -> pb.Empty:
        await context.abort(grpc.StatusCode.UNKNOWN, f"{request.resource_name} is invalid")
        raise AssertionError


def sockets_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.sock"))


def new_allocator(directory: Path, gpu: Gpu = GPU) -> Allocator:
    return Allocator(
        topology([gpu], [[None]]),
        Surroundings(
            virtual=Nowhere(),
            volumes=DriverVolumes(Path("/vol/nvidia"), Path("/vol/origin"), "555.58.02"),
            journal=JournalFile(directory / "journal" / "allocations.json"),
            books=KubeletBooks(directory / "kubelet_internal_checkpoint"),
        ),
    )


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
    plugin = DevicePlugin(allocator, tmp_path, period=0.01, deadline=5.0)
    yield plugin
    await plugin.stop()


async def test_both_resources_are_registered_with_their_sockets(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    await kubelet.start()

    await plugin.start()
    await plugin.registered(BOUND)

    assert await kubelet.registered() == {VCORE: "vcore.sock", VMEMORY: "vmemory.sock"}


async def test_a_kubelet_that_comes_later_is_registered_with(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    await plugin.start()

    await kubelet.start()

    assert len(await kubelet.registered()) == 2
    await plugin.registered(BOUND)


async def test_a_restarted_kubelet_is_registered_with_again(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    await kubelet.start()
    await plugin.start()
    await kubelet.registered()

    await kubelet.stop()
    await kubelet.start()

    assert len(await kubelet.registered()) == 2
    async with kubelet.dial("vcore.sock") as channel:
        devices = await anext(wire.DevicePluginClient(channel).list_and_watch())
    assert len(devices.devices) == 100


async def test_a_removed_socket_of_ours_is_made_again(
    kubelet: Kubelet, plugin: DevicePlugin, tmp_path: Path
) -> None:
    await kubelet.start()
    await plugin.start()
    await kubelet.registered()

    (tmp_path / "vmemory.sock").unlink()

    assert len(await kubelet.registered()) == 2
    assert (tmp_path / "vmemory.sock").is_socket()


async def test_sockets_of_a_killed_plugin_are_replaced(
    kubelet: Kubelet, plugin: DevicePlugin, tmp_path: Path
) -> None:
    await kubelet.start()
    (tmp_path / "vcore.sock").write_text("left over")

    await plugin.start()

    assert len(await kubelet.registered()) == 2


async def test_without_a_kubelet_waiting_ends_with_a_clear_error(plugin: DevicePlugin) -> None:
    await plugin.start()

    with pytest.raises(RegistrationFailed, match="no kubelet socket within"):
        await plugin.registered(0.05)


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
    async with kubelet.dial("vmemory.sock") as channel, asyncio.timeout(BOUND):
        stream = wire.DevicePluginClient(channel).list_and_watch()
        before = await anext(stream)

        allocator.mark_unhealthy([GPU.uuid])
        await plugin.refresh()
        after = await anext(stream)

    assert [device.ID for device in before.devices] == [f"1f3a9c02-m-{i}" for i in range(16)]
    assert {device.health for device in before.devices} == {"Healthy"}
    assert {device.health for device in after.devices} == {"Unhealthy"}
    assert [node.ID for node in before.devices[0].topology.nodes] == [1]


async def test_a_watch_ends_when_the_plugin_stops(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    await plugin.start()
    async with kubelet.dial("vcore.sock") as channel, asyncio.timeout(BOUND):
        stream = wire.DevicePluginClient(channel).list_and_watch()
        await anext(stream)

        await plugin.stop()

        with pytest.raises((StopAsyncIteration, grpc.aio.AioRpcError)):
            await anext(stream)


async def test_an_admission_goes_over_the_wire(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    await plugin.start()
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
    assert container.envs["NVIDIA_VISIBLE_DEVICES"] == GPU.uuid


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
    request = pb.PreStartContainerRequest(devices_ids=["1f3a9c02-c-0"])

    async with kubelet.dial("vcore.sock") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await wire.DevicePluginClient(channel).pre_start(request, BOUND)

    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_list_of_devices_no_kubelet_would_accept_is_not_served(tmp_path: Path) -> None:
    huge = replace(GPU, memory=Bytes(200_000 * MEMORY_BLOCK))
    server = ResourceServer(new_allocator(tmp_path, huge), VMEMORY, tmp_path / "vmemory.sock")

    with pytest.raises(CannotServe, match="a kubelet accepts 4194304"):
        await server.start()


async def test_a_socket_path_that_is_too_long_is_refused(
    tmp_path: Path, allocator: Allocator
) -> None:
    directory = tmp_path / ("x" * 100)
    directory.mkdir()

    with pytest.raises(CannotServe, match="--device-plugin-path"):
        await DevicePlugin(allocator, directory).start()


async def test_a_directory_that_is_not_there_is_refused(
    tmp_path: Path, allocator: Allocator
) -> None:
    with pytest.raises(CannotServe, match="is there a kubelet here"):
        await DevicePlugin(allocator, tmp_path / "absent").start()


async def test_a_registration_nobody_answers_says_where_it_was_tried(tmp_path: Path) -> None:
    with pytest.raises(RegistrationFailed, match="no kubelet listens there"):
        await register(tmp_path / "kubelet.sock", VCORE, tmp_path / "vcore.sock", 2.0)


async def test_a_kubelets_refusal_is_told_in_its_words(tmp_path: Path) -> None:
    kubelet = RefusingKubelet(tmp_path)
    await kubelet.start()
    try:
        with pytest.raises(RegistrationFailed, match=f"{VCORE} is invalid"):
            await register(kubelet.socket, VCORE, tmp_path / "vcore.sock", 2.0)
    finally:
        await kubelet.stop()


def test_a_kubelets_socket_made_anew_is_noticed_even_with_the_same_inode() -> None:
    before = Sockets(kubelet=(7, 100, 100), own=((8, 1, 1),))

    assert before.stale(Sockets(kubelet=(7, 100, 200), own=((8, 1, 1),)))
    assert before.stale(Sockets(kubelet=(7, 100, 100), own=(None,)))
    assert not before.stale(before)
    assert not before.stale(Sockets(kubelet=None, own=(None,)))
