"""What a kubelet's PodResources can tell, found out without side effects.

`List` would make the kubelet rebuild its table of used device IDs, so it is not called. `Get` of a
pod that does not exist changes nothing, and how it is refused tells what is there: nothing, a
kubelet without `Get` (before 1.27), one that has it switched off (the default before 1.34), or one
with it.
"""

import uuid
from enum import Enum
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from gpumanager.errors import GpuManagerError
from gpumanager.kubelet import wire

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
    """Return which calls the kubelet answers; raises ProbeFailed."""
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
