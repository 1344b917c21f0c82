"""RegisterVDevice as gpu-client calls it, by this very process."""

from pathlib import Path

import grpc
import pytest

from gpumanager.legacy.api import vcuda_pb2 as pb
from tests.legacy.gpu_client_play import call, dial


async def register(door: Path, **fields: str) -> None:
    """Raises grpc.aio.AioRpcError."""
    async with dial(door) as channel:
        await call(channel, pb.VDeviceRequest(**fields))


async def refused(door: Path, **fields: str) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await register(door, **fields)
    return caught.value
