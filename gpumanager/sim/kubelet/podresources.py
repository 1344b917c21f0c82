"""The kubelet's PodResources service: who holds which devices, one entry per device as 1.36."""

from collections.abc import Callable
from typing import Any, Protocol

import grpc

from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.sim.kubelet.devices import DeviceBooks
from gpumanager.sim.kubelet.pods import PodList
from gpumanager.sim.pods import ContainerKind, Pod


class View(Protocol):
    """What the service may see of the kubelet."""

    @property
    def books(self) -> DeviceBooks: ...

    @property
    def pods(self) -> PodList: ...


class PodResources:
    """on_list: what looking does to the kubelet's own books, which the real List does too."""

    def __init__(self, view: View, on_list: Callable[[], None]) -> None:
        self._view = view
        self._on_list = on_list

    async def list(
        self, request: pb.ListPodResourcesRequest, context: Any
    ) -> pb.ListPodResourcesResponse:
        del request, context
        self._on_list()
        rows = [self._resources(pod) for pod in self._view.pods.active]
        return pb.ListPodResourcesResponse(pod_resources=rows)

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Any
    ) -> pb.GetPodResourcesResponse:
        for pod in self._view.pods.active:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return pb.GetPodResourcesResponse(pod_resources=self._resources(pod))
        name = f"{request.pod_namespace}/{request.pod_name}"
        await context.abort(grpc.StatusCode.UNKNOWN, f"pod {name} not found")
        raise AssertionError("abort raises")

    def _resources(self, pod: Pod) -> pb.PodResources:
        """Plain init containers are never shown."""
        shown = [one for one in pod.containers if one.kind is not ContainerKind.INIT]
        containers = [self._container(pod.uid, container.name) for container in shown]
        return pb.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _container(self, uid: str, name: str) -> pb.ContainerResources:
        devices = [
            pb.ContainerDevices(resource_name=row.resource, device_ids=[device])
            for row in self._view.books.of_container(uid, name)
            for device in sorted(row.ids)
        ]
        return pb.ContainerResources(name=name, devices=devices)
