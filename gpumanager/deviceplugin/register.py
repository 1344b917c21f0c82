"""Registration: telling the kubelet which resource is served on which socket.

The plugin must already serve: a kubelet of today dials back before Register returns (older ones
later). One that cannot reach the plugin says so after ten seconds.
"""

from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.server import OPTIONS
from gpumanager.errors import GpuManagerError

REGISTER_SECONDS: Final = 15.0


class RegistrationFailed(GpuManagerError):
    """The kubelet did not take a resource: which, where, and what it said."""

    def __init__(self, resource: str, socket: Path, cause: str) -> None:
        super().__init__(f"{socket}: cannot register {resource} with the kubelet: {cause}")


async def register(
    kubelet: Path, resource: str, socket: Path, deadline: float = REGISTER_SECONDS
) -> None:
    """Register `resource`, served on `socket`; both sockets are in one directory.

    Raises RegistrationFailed within `deadline` seconds.
    """
    request = pb.RegisterRequest(
        version=wire.VERSION, endpoint=socket.name, resource_name=resource, options=OPTIONS
    )
    try:
        async with wire.dial(kubelet) as channel:
            await wire.register(channel, request, deadline)
    except grpc.aio.AioRpcError as error:
        cause = f"{error.details()} ({error.code().name})"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            cause = f"no answer within {deadline:g} s"
        elif error.code() is grpc.StatusCode.UNAVAILABLE:
            cause = "no kubelet listens there; is it running, and is this its device plugin path?"
        raise RegistrationFailed(resource, kubelet, cause) from error
