"""The simulated kubelet as a whole: sockets, admission, claims, container start, ends of pods."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.errors import GpuManagerError
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import KUBELET_CHECKPOINT, KUBELET_SOCKET
from gpumanager.sim.clock import RealClock, Timer
from gpumanager.sim.kubelet.devices import (
    NONE,
    DeviceBooks,
    Holding,
    IDs,
    none_healthy,
    pick,
    some,
    too_few,
    why_not_again,
)
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.kubelet.dra.claims import ClaimRefused
from gpumanager.sim.kubelet.dra.manager import DraManager
from gpumanager.sim.kubelet.plugins import PluginFailed, Plugins
from gpumanager.sim.kubelet.pods import Phase, Rejection, SimulatedPodList, room_for
from gpumanager.sim.kubelet.services import PodsApiServer, PodsServer, SimulatedPodResources
from gpumanager.sim.kubelet.versions import KUBELET_1_37, KubeletVersion
from gpumanager.sim.manifest.pods import ContainerManifest, Pod

START_TRIES: Final = 5
START_BACK_OFF: Final = 0.1
"""Seconds before the second try of PreStartContainer, doubled each time; the real one takes 10."""

SYNC_SECONDS: Final = 60.0
"""How often the real one looks at a pod of which nobody says anything."""


class CreateContainerError(GpuManagerError):
    """PreStartContainer failed as often as it was tried."""


class ClaimsUnknown(GpuManagerError):
    """A pod with claims on a kubelet without an API server, or of a version without claims."""


class DevicesNotReady(GpuManagerError):
    """A resource, a DRA driver or its slice that no plugin offered in time."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The answers of a container's plugins, merged: what the runtime is told."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[pb.Mount, ...] = ()
    devices: tuple[pb.DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class SimulatedKubelet:
    """directory: of the device plugins' sockets and the checkpoint; its parent is the kubelet's.

    random: its free choices. api: where it learns of claims; None for a kubelet that has none.
    timer: by which it waits with them. sync_seconds: syncFrequency.
    """

    def __init__(
        self,
        directory: Path,
        random: Random,
        pod_resources: Path,
        version: KubeletVersion = KUBELET_1_37,
        *,
        api: NodeApi | None = None,
        timer: Timer | None = None,
        sync_seconds: float = SYNC_SECONDS,
    ) -> None:
        self.version = version
        self.books = DeviceBooks()
        self.pods = SimulatedPodList()
        self.http = PodsServer(lambda: self.pods)
        self.pod_resources_socket = pod_resources
        self.pods_api = PodsApiServer(lambda: self.pods, version)
        self.pods_api_socket = pod_resources.with_name("pods-api.sock")
        self._directory = directory
        self._random = random
        self._plugins = Plugins(directory, version, self._advertise)
        self.dra: DraManager | None = None
        if api is not None and version.dra_health:
            self.dra = DraManager(
                directory.parent,
                version,
                api=api,
                pods=lambda: self.pods,
                timer=timer or RealClock(),
                sync_seconds=sync_seconds,
            )
        self._servers: list[grpc.aio.Server] = []
        self._admission = asyncio.Lock()
        self._changed = asyncio.Event()

    async def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        # A starting kubelet deletes its own sockets, those of plugins, and perhaps any file.
        kept = self._directory / KUBELET_CHECKPOINT
        others = [one for one in self._directory.iterdir() if one != kept and not one.is_dir()]
        old = [one for one in others if self.version.clears_files or one.is_socket()]
        for path in (self.pod_resources_socket, self.pods_api_socket, *old):
            path.unlink(missing_ok=True)
        await self.http.start()
        resources = SimulatedPodResources(
            lambda: self.pods,
            lambda: self.books,
            lambda *one: self.dra.claims_of(*one) if self.dra is not None else (),
            self.version,
            self._collect,
        )
        await self._serve(self.pod_resources_socket, *resources.handlers())
        if self.version.pods_api:
            await self._serve(self.pods_api_socket, *self.pods_api.handlers())
        registration = wire.registration_handler(self._plugins.register)
        await self._serve(self._directory / KUBELET_SOCKET, registration)
        if self.dra is not None:
            self.dra.start()

    async def stop(self) -> None:
        if self.dra is not None:
            await self.dra.stop()
        await self._plugins.close()
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)
        await self.http.stop()

    async def restart(
        self,
        *,
        rebooted: bool = False,
        before_pods: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Restart as the real one: all sockets go, the pods and the holders stay (checkpoint).

        Then all pods are admitted once more. rebooted: none of them runs any more. before_pods:
        what happens before that, such as that a plugin registers.
        """
        async with self._admission:
            await self.stop()
            self.books = DeviceBooks(self.books.registered, holdings=self.books.holdings)
            await self.start()
        if rebooted:
            for pod in self.pods.active:
                self.pods = self.pods.with_phase(pod.uid, Phase.PENDING)
        if before_pods is not None:
            await before_pods()
        for pod in self.pods.active:
            if self.pods.statuses[pod.uid].phase is not Phase.RUNNING:
                await self.admit(pod)

    async def wait_for_devices(self, resources: Sequence[str], seconds: float) -> None:
        """Wait until each resource has healthy devices; raises DevicesNotReady."""
        try:
            async with asyncio.timeout(seconds):
                while not all(self.books.capacity(name) for name in resources):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            missing = " and ".join(one for one in resources if not self.books.capacity(one))
            raise DevicesNotReady(f"no plugin offered {missing} within {seconds:.0f} s") from None

    async def wait_for_driver(self, driver: str, seconds: float) -> None:
        """Wait until a DRA driver is connected; raises DevicesNotReady, ClaimsUnknown."""
        if self.dra is None:
            raise ClaimsUnknown(f"DRA driver {driver} on a kubelet without an API server")
        try:
            async with asyncio.timeout(seconds):
                await self.dra.drivers.connected(driver)
        except TimeoutError:
            raise DevicesNotReady(
                f"DRA driver {driver} did not register within {seconds:.0f} s"
            ) from None

    def forget_devices(self) -> None:
        """Count no device as healthy until a plugin reports it again."""
        self.books = replace(self.books, healthy=dict.fromkeys(self.books.registered, NONE))

    async def admit(self, pod: Pod) -> Rejection | None:
        """Admit one pod, after all that came before; None where it may run."""
        async with self._admission:
            self.pods = self.pods.add(pod)
            rejection = await self._allocate_pod(pod)
            if rejection is None:
                others = [other for other in self.pods.active if other.uid != pod.uid]
                rejection = room_for(pod, others, self.books)
            self.books = self.books.finish_admission()
            if rejection is not None:
                self._end(pod.uid, Phase.FAILED, rejection.reason, rejection.message)
            return rejection

    async def prepare_claims(self, pod: Pod) -> bool:
        """Prepare the claims before a pod's sandbox; return False where the pod is gone.

        Raises ClaimsUnknown.
        """
        if not pod.claims:
            return True
        if self.dra is None:
            what = f"pod {pod.full_name} has claims"
            raise ClaimsUnknown(
                f"{what}, which this kubelet ({self.version.number}) cannot ask for"
            )
        return await self.dra.prepare(pod)

    async def unprepare_claims(self, pod: Pod) -> None:
        """Unprepare, after the last container has stopped and before the pod counts as ended."""
        if pod.claims and self.dra is not None:
            await self.dra.unprepare(pod)

    async def prepare(self, pod: Pod, container: ContainerManifest) -> RunOptions:
        """Call PreStartContainer for each resource before a start; raises CreateContainerError."""
        for left in reversed(range(START_TRIES)):
            try:
                await self._pre_start(pod, container)
                break
            except PluginFailed as error:
                if not left:
                    raise CreateContainerError(f"CreateContainerError: {error}") from error
            await asyncio.sleep(START_BACK_OFF * 2 ** (START_TRIES - 1 - left))
        rows = self.books.of_container(pod.uid, container.name)
        options = merge([pb.ContainerAllocateResponse.FromString(row.response) for row in rows])
        if self.dra is None or not container.claims:
            return options
        try:
            ids = self.dra.cdi_ids(pod, container)
        except ClaimRefused as error:
            raise CreateContainerError(f"CreateContainerError: {error}") from error
        return replace(options, cdi_devices=(*ids, *options.cdi_devices))

    def running(self, uid: str) -> None:
        self.pods = self.pods.with_phase(uid, Phase.RUNNING)

    def ended(self, uid: str, *, failed: bool) -> None:
        """Record that a pod's containers have ended: it stays listed, its devices are free."""
        self._end(uid, Phase.FAILED if failed else Phase.SUCCEEDED)

    def delete(self, uid: str) -> None:
        """Forget a pod that is gone from the API server."""
        self.pods = self.pods.without(uid)
        self._collect()
        if self.dra is not None:
            self.dra.pods_changed()

    def _end(self, uid: str, phase: Phase, reason: str = "", message: str = "") -> None:
        if uid not in self.pods.statuses:  # deleted meanwhile
            return
        self.pods = self.pods.with_phase(uid, phase, reason, message)
        if not self._admission.locked():
            self._collect()

    def _collect(self) -> None:
        """Free ended pods' devices; the checkpoint keeps them until written for another reason."""
        self.books = self.books.collect(self.pods.active_uids)

    def _advertise(self, resource: str, devices: Iterable[pb.Device] | None) -> None:
        """Take what a plugin reports; None: it has ended."""
        known, healthy, nodes = self.books.registered.get(resource, NONE), NONE, None
        if devices is not None:
            rows = list(devices)
            known = frozenset(row.ID for row in rows)
            healthy = frozenset(row.ID for row in rows if row.health == "Healthy")
            numa = {row.ID: tuple(node.ID for node in row.topology.nodes) for row in rows}
            nodes = {name: found for name, found in numa.items() if found}
        self.books = self.books.advertise(resource, known, healthy, nodes)
        self._write_checkpoint()
        self._changed.set()

    def _write_checkpoint(self) -> None:
        """Write it atomically, as the real one does."""
        path = self._directory / KUBELET_CHECKPOINT
        temporary = path.with_name(f".{path.name}.new")
        with contextlib.suppress(FileNotFoundError):  # the directory went, with the node
            temporary.write_text(self.books.checkpoint_text(self.version.node_of_none))
            temporary.replace(path)

    async def _serve(self, socket: Path, *handlers: Any) -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(handlers)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._servers.append(server)

    async def _allocate_pod(self, pod: Pod) -> Rejection | None:
        reusable: dict[str, IDs] = {}  # what its init containers leave to the next container
        for container in pod.containers:
            self._collect()
            asked = list(container.asks.items())
            self._random.shuffle(asked)  # as the order of Go's maps
            for resource, size in asked:
                left = reusable.get(resource, NONE)
                refused = await self._allocate(pod, container, resource, size, left)
                if refused is not None:
                    message = f"Allocate failed due to {refused}, which is unexpected"
                    return Rejection("UnexpectedAdmissionError", message, refused)
            holdings = self.books.of_container(pod.uid, container.name)
            for one in holdings:
                left, init = reusable.get(one.resource, NONE), container.kind is ContainerKind.INIT
                reusable[one.resource] = left | one.ids if init else left - one.ids
            if holdings:
                self._write_checkpoint()
        return None

    async def _allocate(
        self, pod: Pod, container: ContainerManifest, resource: str, size: int, reusable: IDs
    ) -> str | None:
        """Allocate one resource of one container; return why it was refused, or None."""
        strict = self.version.asks_health_again
        for row in self.books.of_container(pod.uid, container.name):
            if row.resource == resource:
                return why_not_again(self.books, row, size, health=strict)
        endpoint = self._plugins.get(resource)
        if endpoint is None or not self.books.capacity(resource):
            if resource not in self.books.registered:
                return f"cannot allocate unregistered device {resource}"
            return none_healthy(resource) if strict else too_few(resource, size, 0)
        ids = reused = some(reusable, size, self._random)
        free = self.books.free(resource)
        if size - len(reused) > len(free):
            return too_few(resource, size - len(reused), len(free))
        try:
            if len(reused) < size:
                preferred = await endpoint.preferred(free | reused, reused, size)
                ids = pick(size, reused, free, preferred, self._random)
                self.books = self.books.reserve(resource, ids)
            response = await endpoint.allocate(ids)
        except PluginFailed as error:
            return str(error)
        holding = Holding(pod.uid, container.name, resource, ids, response.SerializeToString())
        self.books = self.books.hold(holding)
        return None

    async def _pre_start(self, pod: Pod, container: ContainerManifest) -> None:
        for holding in self.books.of_container(pod.uid, container.name):
            endpoint = self._plugins.get(holding.resource)
            if endpoint is None:
                raise PluginFailed(f"no device plugin for {holding.resource}")
            await endpoint.pre_start(holding.ids)


def merge(responses: Sequence[pb.ContainerAllocateResponse]) -> RunOptions:
    """Merge several answers; of two that name the same thing the first counts."""
    environment, annotations = dict[str, str](), dict[str, str]()
    mounts, devices = dict[str, pb.Mount](), dict[str, pb.DeviceSpec]()
    for response in reversed(responses):
        environment |= response.envs
        annotations |= response.annotations
        mounts |= {row.container_path: row for row in response.mounts}
        devices |= {row.container_path: row for row in response.devices}
    cdi_devices = tuple(one.name for response in responses for one in response.cdi_devices)
    return RunOptions(
        environment, tuple(mounts.values()), tuple(devices.values()), annotations, cdi_devices
    )
