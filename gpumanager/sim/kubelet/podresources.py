"""The kubelet's PodResources service, v1 and v1alpha1: the devices of each container."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import grpc

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire
from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.sim.kubelet.devices import DeviceBooks, Holding
from gpumanager.sim.kubelet.dra.claims import ClaimState
from gpumanager.sim.kubelet.pods import SimulatedPodList
from gpumanager.sim.kubelet.versions import KubeletVersion
from gpumanager.sim.manifest.pods import ContainerManifest, Pod

TOO_MANY: Final = "rejected by rate limit"


class View(Protocol):
    """What the service may see of the kubelet."""

    @property
    def books(self) -> DeviceBooks: ...

    @property
    def pods(self) -> SimulatedPodList: ...

    def claimed(self, pod: Pod, container: ContainerManifest) -> Iterable[ClaimState]:
        """Return what drivers have prepared for it, by claim."""
        ...


class Bucket:
    """Grants `rate` calls a second, and `burst` at once. rate 0: any number."""

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._at = clock()

    def take(self) -> bool:
        if not self._rate:
            return True
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class SimulatedPodResources:
    """on_list: what List does to the kubelet's own books, as with the real one."""

    def __init__(self, view: View, version: KubeletVersion, on_list: Callable[[], None]) -> None:
        self._view = view
        self._version = version
        self._on_list = on_list
        self._bucket = Bucket(version.calls, version.burst)

    def handlers(self) -> "tuple[grpc.GenericRpcHandler[Any, Any], ...]":
        """Return the handlers of both versions, as the kubelet serves them."""
        first = wire.pod_resources_handler(self, self._version.methods)
        return first, wire.alpha_handler(self.list_alpha)

    async def list(
        self, request: pb.ListPodResourcesRequest, context: Any
    ) -> pb.ListPodResourcesResponse:
        del request
        await self._granted(context)
        self._on_list()
        pods = self._view.pods
        listed = pods.every if self._version.lists_ended else pods.active
        return pb.ListPodResourcesResponse(pod_resources=[self._resources(pod) for pod in listed])

    async def list_alpha(
        self, request: pb.ListPodResourcesRequest, context: Any
    ) -> pb.ListPodResourcesResponse:
        """List ended pods too, with every version, without NUMA nodes and sidecars."""
        del request
        await self._granted(context)
        self._on_list()
        rows = [self._resources(pod, alpha=True) for pod in self._view.pods.every]
        return pb.ListPodResourcesResponse(pod_resources=rows)

    async def allocatable(
        self, request: pb.AllocatableResourcesRequest, context: Any
    ) -> pb.AllocatableResourcesResponse:
        del request
        await self._granted(context)
        books = self._view.books
        rows = (Holding("", "", resource, ids) for resource, ids in books.healthy.items())
        return pb.AllocatableResourcesResponse(devices=self._entries(rows))

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Any
    ) -> pb.GetPodResourcesResponse:
        await self._granted(context)
        for pod in self._view.pods.active:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return pb.GetPodResourcesResponse(pod_resources=self._resources(pod))
        where = f"pod {request.pod_name} in namespace {request.pod_namespace}"
        await context.abort(grpc.StatusCode.UNKNOWN, f"{where} not found")
        raise AssertionError("abort raises")

    async def _granted(self, context: Any) -> None:
        if not self._bucket.take():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY)

    def _resources(self, pod: Pod, *, alpha: bool = False) -> pb.PodResources:
        """Return a pod without its plain init containers."""
        kinds = {ContainerKind.APP} if alpha else {ContainerKind.APP, ContainerKind.SIDECAR}
        shown = [one for one in pod.containers if one.kind in kinds]
        containers = []
        for container in shown:
            rows = self._view.books.of_container(pod.uid, container.name)
            devices = list(self._entries(rows))
            if alpha:
                for entry in devices:
                    entry.ClearField("topology")
            claimed = [
                pb.DynamicResource(
                    claim_name=claim.key.name,
                    claim_namespace=claim.key.namespace,
                    claim_resources=[
                        pb.ClaimResource(
                            cdi_devices=[pb.CDIDevice(name=one) for one in device.cdi_device_ids],
                            driver_name=claim.driver,
                            pool_name=device.pool_name,
                            device_name=device.device_name,
                            share_id=device.share_id if device.HasField("share_id") else None,
                        )
                        for device in claim.devices
                    ],
                )
                for claim in (() if alpha else self._view.claimed(pod, container))
            ]
            containers.append(
                pb.ContainerResources(
                    name=container.name, devices=devices, dynamic_resources=claimed
                )
            )
        return pb.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _entries(self, rows: Iterable[Holding]) -> Iterator[pb.ContainerDevices]:
        for row in rows:
            if self._version.entry_per_device:
                for device_id in sorted(row.ids):  # an entry for each NUMA node of each device
                    nodes = self._view.books.nodes_of(row.resource, device_id)
                    for node in nodes or (None,):
                        numa = [] if node is None else [pb.NUMANode(ID=node)]
                        yield pb.ContainerDevices(
                            resource_name=row.resource,
                            device_ids=[device_id],
                            topology=pb.TopologyInfo(nodes=numa) if numa else None,
                        )
            elif row.ids:
                yield pb.ContainerDevices(resource_name=row.resource, device_ids=sorted(row.ids))
