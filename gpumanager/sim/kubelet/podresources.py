"""The kubelet's PodResources service, v1 and v1alpha1: the devices of each container."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire
from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.limits.socket.bounds import TokenBucket
from gpumanager.sim.kubelet.devices import DeviceBooks, Holding
from gpumanager.sim.kubelet.dra.claims import ClaimState
from gpumanager.sim.kubelet.pods import SimulatedPodList
from gpumanager.sim.kubelet.versions import KubeletVersion
from gpumanager.sim.manifest.pods import ContainerManifest, Pod


async def take_token(bucket: TokenBucket, context: Any) -> None:
    """Answer the call with an error where the kubelet has had too many."""
    if bucket.rate and not bucket.take(time.monotonic()):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


class SimulatedPodResources:
    """pods, books: as they are now. claimed: what drivers have prepared for a container, by claim.
    on_list: what List does to the kubelet's own books, as with the real one.
    """

    def __init__(
        self,
        pods: Callable[[], SimulatedPodList],
        books: Callable[[], DeviceBooks],
        claimed: Callable[[Pod, ContainerManifest], Iterable[ClaimState]],
        version: KubeletVersion,
        on_list: Callable[[], None],
    ) -> None:
        self._pods, self._books, self._claimed = pods, books, claimed
        self._version = version
        self._on_list = on_list
        self._bucket = TokenBucket(version.calls, version.burst)

    def handlers(self) -> "tuple[grpc.GenericRpcHandler[Any, Any], ...]":
        """Return the handlers of both versions, as the kubelet serves them."""
        first = wire.pod_resources_handler(self, self._version.methods)
        return first, wire.alpha_handler(self.list_alpha)

    async def list(
        self, request: pb.ListPodResourcesRequest, context: Any
    ) -> pb.ListPodResourcesResponse:
        del request
        await take_token(self._bucket, context)
        self._on_list()
        pods = self._pods()
        listed = pods.every if self._version.lists_ended else pods.active
        return pb.ListPodResourcesResponse(pod_resources=[self._resources(pod) for pod in listed])

    async def list_alpha(
        self, request: pb.ListPodResourcesRequest, context: Any
    ) -> pb.ListPodResourcesResponse:
        """List ended pods too, with every version, without NUMA nodes and sidecars."""
        del request
        await take_token(self._bucket, context)
        self._on_list()
        rows = [self._resources(pod, alpha=True) for pod in self._pods().every]
        return pb.ListPodResourcesResponse(pod_resources=rows)

    async def allocatable(
        self, request: pb.AllocatableResourcesRequest, context: Any
    ) -> pb.AllocatableResourcesResponse:
        del request
        await take_token(self._bucket, context)
        books = self._books()
        rows = (Holding("", "", resource, ids) for resource, ids in books.healthy.items())
        return pb.AllocatableResourcesResponse(devices=self._entries(rows))

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Any
    ) -> pb.GetPodResourcesResponse:
        await take_token(self._bucket, context)
        for pod in self._pods().active:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return pb.GetPodResourcesResponse(pod_resources=self._resources(pod))
        where = f"pod {request.pod_name} in namespace {request.pod_namespace}"
        await context.abort(grpc.StatusCode.UNKNOWN, f"{where} not found")
        raise AssertionError("abort raises")

    def _resources(self, pod: Pod, *, alpha: bool = False) -> pb.PodResources:
        """Return a pod without its plain init containers."""
        kinds = {ContainerKind.APP} if alpha else {ContainerKind.APP, ContainerKind.SIDECAR}
        shown = [one for one in pod.containers if one.kind in kinds]
        containers = []
        for container in shown:
            rows = self._books().of_container(pod.uid, container.name)
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
                for claim in (() if alpha else self._claimed(pod, container))
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
                    nodes = self._books().nodes_of(row.resource, device_id)
                    for node in nodes or (None,):
                        numa = [] if node is None else [pb.NUMANode(ID=node)]
                        yield pb.ContainerDevices(
                            resource_name=row.resource,
                            device_ids=[device_id],
                            topology=pb.TopologyInfo(nodes=numa) if numa else None,
                        )
            elif row.ids:
                yield pb.ContainerDevices(resource_name=row.resource, device_ids=sorted(row.ids))
