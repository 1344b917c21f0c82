"""gpu-client, as far as vcuda-controller and the manager can tell: same flags, call and status."""

import argparse
import sys
from pathlib import Path
from typing import Any

import grpc

from gpumanager.legacy.api import vcuda_pb2 as pb

METHOD = "/vcuda.VCUDAService/RegisterVDevice"
FAILED = 255


def call(channel: Any, request: pb.VDeviceRequest, timeout: float = 10) -> Any:
    """Of a channel with or without asyncio."""
    stub = channel.unary_unary(
        METHOD, pb.VDeviceRequest.SerializeToString, pb.VDeviceResponse.FromString
    )
    return stub(request, timeout=timeout)


def dial(socket: Path, module: Any = grpc.aio) -> Any:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    return module.insecure_channel(f"unix:{socket}", options=options)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("addr", "bus-id", "pod-uid", "cont-name", "cont-id"):
        parser.add_argument(f"--{name}", default="")
    flags = parser.parse_args()
    request = pb.VDeviceRequest(
        bus_id=flags.bus_id,
        pod_uid=flags.pod_uid,
        container_name="" if flags.cont_id else flags.cont_name,
        container_id=flags.cont_id,
    )
    try:
        with dial(flags.addr, grpc) as channel:
            call(channel, request)
    except grpc.RpcError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
