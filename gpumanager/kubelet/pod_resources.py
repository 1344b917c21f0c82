"""The kubelet's PodResources API as a second source of who holds which device IDs.

`get` (kubelets ≥ 1.34) has no side effect. `list` makes a kubelet rebuild its table of used IDs, in
the middle of an admission if there is one: call it only while nothing is being admitted. Neither
lists plain init containers, and neither knows the pod's UID.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio

from gpumanager.kubelet import wire
from gpumanager.kubelet.api import podresources_v1_pb2 as pb

TIMEOUT: Final = 2.0


@dataclass(frozen=True, slots=True)
class NamedHolder:
    """One container, by names, and the IDs it holds of one resource."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: frozenset[str]


class PodResources:
    """Asks the socket; where the kubelet does not answer, knows of nobody."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT) -> None:
        self._socket = socket
        self._timeout = timeout

    async def get(self, namespace: str, name: str) -> tuple[NamedHolder, ...]:
        try:
            async with wire.dial(self._socket) as channel:
                client = wire.PodResourcesClient(channel, self._timeout)
                answer = await client.get(namespace, name)
        except grpc.aio.AioRpcError:
            return ()
        return tuple(_holders([answer.pod_resources]))

    async def list(self) -> tuple[NamedHolder, ...]:
        """Never while a pod is being admitted."""
        try:
            async with wire.dial(self._socket) as channel:
                answer = await wire.PodResourcesClient(channel, self._timeout).list()
        except grpc.aio.AioRpcError:
            return ()
        return tuple(_holders(answer.pod_resources))


def _holders(pods: Iterable[pb.PodResources]) -> Iterator[NamedHolder]:
    for pod in pods:
        for container in pod.containers:
            for resource, ids in _by_resource(container).items():
                yield NamedHolder(pod.namespace, pod.name, container.name, resource, frozenset(ids))


def _by_resource(container: pb.ContainerResources) -> dict[str, set[str]]:
    """Old kubelets make one entry per resource, new ones one per device."""
    held: dict[str, set[str]] = {}
    for devices in container.devices:
        held.setdefault(devices.resource_name, set()).update(devices.device_ids)
    return held
