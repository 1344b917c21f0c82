"""The kubelet's PodResources API: which CDI devices the claims of running containers have.

`List` makes a kubelet rebuild its table of used device IDs, in the middle of an admission if there
is one. Today's kubelets refuse more than a hundred calls a second, at once; who asks asks again in
its next pass.
"""

import uuid
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from gpumanager.errors import GpuManagerError
from gpumanager.kubelet import wire

TIMEOUT: Final = 2.0
PROBE_SECONDS: Final = 3.0
_SILENT: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


class PodResourcesUnavailable(GpuManagerError):
    """The kubelet did not answer: what was asked where, and what it said."""

    def __init__(self, socket: Path, error: grpc.aio.AioRpcError) -> None:
        said = error.details() or error.code().name
        super().__init__(f"{socket}: no answer from the kubelet's PodResources: {said}")


class PodResources:
    """Asks the socket. timeout: seconds for each call."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT) -> None:
        self._socket = socket
        self._timeout = timeout

    async def cdi_devices(self) -> frozenset[str]:
        """Return the CDI devices of the claims of all containers; none where the kubelet does not
        list claims (before 1.34, by a feature gate). Raises PodResourcesUnavailable."""
        try:
            async with wire.dial(self._socket) as channel:
                answer = await wire.PodResourcesClient(channel, self._timeout).list()
        except grpc.aio.AioRpcError as error:
            raise PodResourcesUnavailable(self._socket, error) from error
        return frozenset(
            device.name
            for pod in answer.pod_resources
            for container in pod.containers
            for claim in container.dynamic_resources
            for resource in claim.claim_resources
            for device in resource.cdi_devices
        )


async def probe(socket: Path, seconds: float = PROBE_SECONDS) -> str:
    """Return which calls the kubelet answers; raises PodResourcesUnavailable.

    `Get` of a pod that does not exist changes nothing, and how it is refused says what is there:
    a kubelet without it (before 1.27), one with it switched off (the default before 1.34), or on.
    """
    try:
        async with wire.dial(socket) as channel:
            await wire.PodResourcesClient(channel, seconds).get("kube-system", str(uuid.uuid4()))
    except grpc.aio.AioRpcError as error:
        if error.code() in _SILENT:
            raise PodResourcesUnavailable(socket, error) from error
        off = "disabled" in (error.details() or "")
        if off or error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "List"
    return "List, Get"
