"""The simulated kubelet as a whole: sockets, admission, container start, the ends of pods."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.errors import GpuManagerError
from gpumanager.kubelet.wire import pod_resources_handler
from gpumanager.names import KUBELET_CHECKPOINT, KUBELET_SOCKET
from gpumanager.sim.kubelet.checkpoint import write_checkpoint
from gpumanager.sim.kubelet.devices import (
    NONE,
    DeviceBooks,
    Holding,
    IDs,
    Reusable,
    Unavailable,
    begin,
    finish,
    leave,
)
from gpumanager.sim.kubelet.http import PodsServer
from gpumanager.sim.kubelet.plugins import PluginEndpoint, PluginFailed, Plugins
from gpumanager.sim.kubelet.podresources import PodResources
from gpumanager.sim.kubelet.pods import Phase, PodList, Rejection, room_for
from gpumanager.sim.pods import Container, Pod

START_TRIES: Final = 5
START_BACK_OFF: Final = 0.1
"""Seconds before the second try of PreStartContainer, doubled each time; the real one takes 10."""


class CreateContainerError(GpuManagerError):
    """PreStartContainer failed as often as it was tried."""


class DevicesNotReady(GpuManagerError):
    """A resource that no plugin offered in time."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The answers of a container's plugins, merged: what the runtime is told."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[pb.Mount, ...] = ()
    devices: tuple[pb.DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


class SimulatedKubelet:
    """directory: of the device plugins' sockets and the checkpoint. random: its free choices."""

    def __init__(self, directory: Path, random: Random, pod_resources: Path) -> None:
        self.books = DeviceBooks()
        self.pods = PodList()
        self.http = PodsServer(self._pods_json)
        self.pod_resources_socket = pod_resources
        self._directory = directory
        self._random = random
        self._plugins = Plugins(directory, self._on_devices)
        self._servers: list[grpc.aio.Server] = []
        self._admission = asyncio.Lock()
        self._changed = asyncio.Event()

    async def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for old in _sockets(self._directory, self.pod_resources_socket):
            old.unlink(missing_ok=True)
        await self.http.start()
        resources = PodResources(self, on_list=self._collect)
        await self._serve(self.pod_resources_socket, pod_resources_handler(resources))
        registration = wire.registration_handler(self._plugins.register)
        await self._serve(self._directory / KUBELET_SOCKET, registration)

    async def stop(self) -> None:
        await self._plugins.close()
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)
        await self.http.stop()

    async def restart(self) -> None:
        """As the real one: all sockets go, the pods and the holders stay (from its checkpoint)."""
        async with self._admission:
            await self.stop()
            held = (self.books.settle().holdings, self.books.registered)
            self.books = DeviceBooks(registered=held[1], holdings=held[0])
            await self.start()

    async def wait_for_devices(self, resources: Sequence[str], seconds: float) -> None:
        """Until each resource has healthy devices; raises DevicesNotReady."""
        try:
            async with asyncio.timeout(seconds):
                while not all(self.books.capacity(name) for name in resources):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            missing = [name for name in resources if not self.books.capacity(name)]
            raise DevicesNotReady(
                f"no plugin offered {' and '.join(missing)} within {seconds:.0f} s"
            ) from None

    def forget_devices(self) -> None:
        """Nothing is healthy until a plugin says so again."""
        for resource, registered in self.books.registered.items():
            self.books = self.books.advertise(resource, registered, NONE)

    async def admit(self, pod: Pod) -> Rejection | None:
        """Admit one pod, after all that came before; None where it may run."""
        async with self._admission:
            others = self.pods.active
            self.pods = self.pods.add(pod)
            rejection = room_for(pod, others, self.books) or await self._allocate_pod(pod)
            self.books = self.books.settle()
            if rejection is not None:
                self._end(pod.uid, Phase.FAILED, rejection.reason, rejection.message)
            return rejection

    async def prepare(self, pod: Pod, container: Container) -> RunOptions:
        """PreStartContainer for each resource, before every start; raises CreateContainerError."""
        back_off = START_BACK_OFF
        for left in reversed(range(START_TRIES)):
            try:
                await self._pre_start(pod, container)
                break
            except PluginFailed as error:
                if not left:
                    raise CreateContainerError(f"CreateContainerError: {error}") from error
            await asyncio.sleep(back_off)
            back_off *= 2
        return merge(self._responses(pod, container))

    def running(self, uid: str) -> None:
        self.pods = self.pods.with_phase(uid, Phase.RUNNING)

    def ended(self, uid: str, *, failed: bool) -> None:
        """All containers of a pod have ended: it stays listed, its devices are free."""
        self._end(uid, Phase.FAILED if failed else Phase.SUCCEEDED)

    def delete(self, uid: str) -> None:
        """The pod is gone from the API server."""
        self.pods = self.pods.without(uid)
        self._collect()

    def _end(self, uid: str, phase: Phase, reason: str = "", message: str = "") -> None:
        self.pods = self.pods.with_phase(uid, phase, reason, message)
        if not self._admission.locked():
            self._collect()

    def _pods_json(self) -> dict[str, Any]:
        return self.pods.as_json()

    def _collect(self) -> None:
        collected = self.books.collect(self.pods.active_uids)
        if collected is not self.books:
            self.books = collected
            self._write_checkpoint()

    def _on_devices(self, resource: str, registered: IDs, healthy: IDs) -> None:
        self.books = self.books.advertise(resource, registered, healthy)
        self._changed.set()

    def _write_checkpoint(self) -> None:
        write_checkpoint(self.books, self._directory / KUBELET_CHECKPOINT)

    async def _serve(self, socket: Path, handler: Any) -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._servers.append(server)

    async def _allocate_pod(self, pod: Pod) -> Rejection | None:
        self._collect()
        reusable: Reusable = {}
        for container in pod.containers:
            asked = list(container.asks.items())
            self._random.shuffle(asked)  # as the order of Go's maps
            for resource, size in asked:
                refused = await self._allocate(pod, container, resource, size, reusable)
                if refused is not None:
                    message = f"Allocate failed due to {refused}, which is unexpected"
                    return Rejection("UnexpectedAdmissionError", message, refused)
            holdings = self.books.of_container(pod.uid, container.name)
            reusable = leave(reusable, container, holdings)
            if holdings:
                self._write_checkpoint()
        return None

    async def _allocate(
        self, pod: Pod, container: Container, resource: str, size: int, reusable: Reusable
    ) -> str | None:
        """One resource of one container; what was refused, or None."""
        endpoint = self._plugins.get(resource)
        if endpoint is None:
            return f"no device plugin for {resource}"
        try:
            ids = await self._choose(endpoint, size, reusable.get(resource, NONE))
            if isinstance(ids, Unavailable):
                return str(ids)
            response = await endpoint.allocate(ids)
        except PluginFailed as error:
            return str(error)
        holding = Holding(pod.uid, container.name, resource, ids, response.SerializeToString())
        self.books = self.books.hold(holding)
        return None

    async def _choose(
        self, endpoint: PluginEndpoint, size: int, reusable: IDs
    ) -> IDs | Unavailable:
        choice = begin(self.books, endpoint.resource, size, reusable, self._random)
        if isinstance(choice, Unavailable) or choice.complete:
            return choice if isinstance(choice, Unavailable) else choice.reused
        everything = choice.available | choice.reused
        preferred = await endpoint.preferred(everything, choice.reused, size)
        ids = finish(choice, preferred, self._random)
        self.books = self.books.reserve(endpoint.resource, ids)
        return ids

    async def _pre_start(self, pod: Pod, container: Container) -> None:
        for holding in self.books.of_container(pod.uid, container.name):
            endpoint = self._plugins.get(holding.resource)
            if endpoint is None:
                raise PluginFailed(f"no device plugin for {holding.resource}")
            await endpoint.pre_start(holding.ids)

    def _responses(self, pod: Pod, container: Container) -> list[pb.ContainerAllocateResponse]:
        rows = self.books.of_container(pod.uid, container.name)
        return [pb.ContainerAllocateResponse.FromString(row.response) for row in rows]


def _sockets(directory: Path, pod_resources: Path) -> list[Path]:
    """What a starting kubelet deletes: its own sockets and those of all plugins."""
    return [pod_resources, *(path for path in directory.iterdir() if path.is_socket())]


def merge(responses: Sequence[pb.ContainerAllocateResponse]) -> RunOptions:
    """One answer of several; of two that name the same thing the first counts."""
    environment: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, pb.Mount] = {}
    devices: dict[str, pb.DeviceSpec] = {}
    for response in responses:
        environment = {**response.envs, **environment}
        annotations = {**response.annotations, **annotations}
        mounts = {**{row.container_path: row for row in response.mounts}, **mounts}
        devices = {**{row.container_path: row for row in response.devices}, **devices}
    return RunOptions(environment, tuple(mounts.values()), tuple(devices.values()), annotations)
