"""The kubelet's PodResources API as a second source of which pod holds which device IDs.

`get` (kubelets from 1.34 on, unless turned off) has no side effect. `list` makes a kubelet rebuild
its table of used IDs, in the middle of an admission if there is one: call it only while nothing is
being admitted. Neither lists plain init containers, and neither knows the pod's UID.

v1 is asked first; kubelets before 1.20 have v1alpha1 alone. Today's refuse more than a hundred
calls a second, at once; such a call is tried again after a moment.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from gpumanager.errors import GpuManagerError
from gpumanager.kubelet import wire
from gpumanager.kubelet.api import podresources_v1_pb2 as pb

TIMEOUT: Final = 2.0
REFUSED_PAUSE: Final = 0.015
"""Seconds until a kubelet that counts calls grants another one, and some."""
CALL_ATTEMPTS: Final = 12
"""Of one call; by measurement each of a storm's calls was answered by then."""

_T = TypeVar("_T")


class PodResourcesUnavailable(GpuManagerError):
    """The kubelet did not answer: what was asked where, and what it said."""

    def __init__(self, socket: Path, error: grpc.aio.AioRpcError) -> None:
        self.unimplemented = error.code() is grpc.StatusCode.UNIMPLEMENTED
        said = error.details() or error.code().name
        super().__init__(f"{socket}: no answer from the kubelet's PodResources: {said}")


@dataclass(frozen=True, slots=True)
class NamedHolder:
    """One container, by names, and the IDs it holds of one resource."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: frozenset[str]


class PodResources:
    """Asks the socket. timeout: seconds for each call."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT) -> None:
        self._socket = socket
        self._timeout = timeout

    async def get(self, namespace: str, name: str) -> tuple[NamedHolder, ...]:
        """Return the holders of one pod; none where the kubelet does not answer."""
        try:
            answer = await self._call(lambda client: client.get(namespace, name))
        except PodResourcesUnavailable:
            return ()
        return tuple(_holders([answer.pod_resources]))

    async def list(self) -> tuple[NamedHolder, ...]:
        """Return all holders as `holders`; none where the kubelet does not answer."""
        try:
            return await self.holders()
        except PodResourcesUnavailable:
            return ()

    async def holders(self) -> tuple[NamedHolder, ...]:
        """Return all holders. Never call it during an admission. Raises PodResourcesUnavailable."""
        try:
            answer = await self._call(lambda client: client.list())
        except PodResourcesUnavailable as error:
            if not error.unimplemented:
                raise
            answer = await self._call(lambda client: client.list(wire.ALPHA))
        return tuple(_holders(answer.pod_resources))

    async def cdi_devices(self) -> frozenset[str]:
        """Return the CDI devices of the claims of all containers; none where the kubelet does not
        list claims (before 1.34, by a feature gate). Raises as `holders`."""
        answer = await self._call(lambda client: client.list())
        return frozenset(
            device.name
            for pod in answer.pod_resources
            for container in pod.containers
            for claim in container.dynamic_resources
            for resource in claim.claim_resources
            for device in resource.cdi_devices
        )

    async def allocatable(self, resource: str) -> frozenset[str]:
        """Return the kubelet's healthy IDs (1.21 on). Raises PodResourcesUnavailable."""
        answer = await self._call(lambda client: client.allocatable())
        rows = (row for row in answer.devices if row.resource_name == resource)
        return frozenset(name for row in rows for name in row.device_ids)

    async def _call(self, call: Callable[[wire.PodResourcesClient], Awaitable[_T]]) -> _T:
        async with wire.dial(self._socket) as channel:
            client = wire.PodResourcesClient(channel, self._timeout)
            for left in reversed(range(CALL_ATTEMPTS)):
                try:
                    return await call(client)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or not left:
                        raise PodResourcesUnavailable(self._socket, error) from error
                await asyncio.sleep(REFUSED_PAUSE)
        raise AssertionError("the last try returns or raises")


def _holders(pods: Iterable[pb.PodResources]) -> Iterator[NamedHolder]:
    for pod in pods:
        for container in pod.containers:
            # Old kubelets make one entry per resource, new ones one per device and NUMA node.
            held: dict[str, set[str]] = {}
            for devices in container.devices:
                held.setdefault(devices.resource_name, set()).update(devices.device_ids)
            for resource, ids in held.items():
                yield NamedHolder(pod.namespace, pod.name, container.name, resource, frozenset(ids))


PROBE_SECONDS: Final = 3.0
_SILENT: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


class ProbeFailed(GpuManagerError):
    """The kubelet's PodResources socket does not answer."""

    def __init__(self, socket: Path, cause: str) -> None:
        super().__init__(f"{socket}: the kubelet's PodResources does not answer: {cause}")


class Speaks(Enum):
    """Which of PodResources' questions are answered."""

    LIST = "List"
    LIST_AND_GET = "List, Get"


async def probe(socket: Path, seconds: float = PROBE_SECONDS) -> Speaks:
    """Return which calls the kubelet answers; raises ProbeFailed.

    `Get` of a pod that does not exist changes nothing, and how it is refused says what is there:
    a kubelet without it (before 1.27), one with it switched off (the default before 1.34), or on.
    """
    try:
        async with wire.dial(socket) as channel:
            await wire.PodResourcesClient(channel, seconds).get("kube-system", str(uuid.uuid4()))
    except grpc.aio.AioRpcError as error:
        if error.code() in _SILENT:
            raise ProbeFailed(socket, error.details() or error.code().name) from error
        without = error.code() is grpc.StatusCode.UNIMPLEMENTED
        off = "disabled" in (error.details() or "")
        return Speaks.LIST if without or off else Speaks.LIST_AND_GET
    return Speaks.LIST_AND_GET
