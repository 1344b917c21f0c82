"""The simulated container runtime: CRI on a socket, for the containers that a simulated node runs.

It tells what containerd tells, in containerd's form: labels and annotations as the kubelet gives
them, and on demand a JSON with the pid and the configuration. It starts nothing itself; what CDI
devices change in a container it says before (`create`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager.ids import ContainerID
from gpumanager.runtime import wire
from gpumanager.runtime.api import runtime_v1_pb2 as pb
from gpumanager.runtime.status import (
    LABEL_CONTAINER,
    LABEL_POD_NAME,
    LABEL_POD_NAMESPACE,
    LABEL_POD_UID,
    Bind,
    LiveContainer,
)
from gpumanager.sim.cdi import inject, read_specs
from gpumanager.sim.container.values import ContainerSpec

NAME: Final = "containerd"


@dataclass(frozen=True, slots=True)
class ContainerdVersion:
    """number: as CRI tells it. cdi: injects CDI devices; else it ignores them silently, and a
    container that is to have one starts without.
    """

    number: str
    cdi: bool


CONTAINERD_1_6: Final = ContainerdVersion("1.6.20", cdi=False)
CONTAINERD_1_7: Final = ContainerdVersion("1.7.24", cdi=False)
CONTAINERD_1_7_WITH_CDI: Final = replace(CONTAINERD_1_7, cdi=True)
"""With `enable_cdi = true` in its configuration; nothing in its version says so."""
CONTAINERD_2: Final = ContainerdVersion("2.1.9", cdi=True)


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """One run of a container."""

    live: LiveContainer
    attempt: int
    running: bool = True

    @property
    def labels(self) -> dict[str, str]:
        one = self.live.container
        return {
            LABEL_POD_UID: one.pod_uid,
            LABEL_POD_NAMESPACE: one.pod_namespace,
            LABEL_POD_NAME: one.pod_name,
            LABEL_CONTAINER: one.name,
        }

    @property
    def shown(self) -> dict[str, Any]:
        """Return the fields that `Container` and `ContainerStatus` have in common."""
        one = self.live.container
        return {
            "id": one.container_id,
            "metadata": pb.ContainerMetadata(name=one.name, attempt=self.attempt),
            "state": pb.CONTAINER_RUNNING if self.running else pb.CONTAINER_EXITED,
            "labels": self.labels,
            "annotations": self.live.annotations,
        }


class SimulatedRuntime:
    """services: the versions of CRI that it speaks. cdi: directories of spec files, the last one
    first in precedence.
    """

    def __init__(
        self,
        socket: Path,
        services: Sequence[str] = (wire.V1,),
        *,
        kind: ContainerdVersion = CONTAINERD_2,
        cdi: Sequence[Path] = (),
    ) -> None:
        self.socket = socket
        self.kind = kind
        self._cdi = tuple(cdi)
        self._services = tuple(services)
        self._runs: dict[ContainerID, ContainerRun] = {}
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        handlers = tuple(wire.runtime_handler(self, service) for service in self._services)
        self._server.add_generic_rpc_handlers(handlers)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    def create(self, spec: ContainerSpec, cdi_devices: Sequence[str]) -> ContainerSpec:
        """Return what is started: `spec` with its CDI devices; raises CdiUnresolved."""
        if not self.kind.cdi or not cdi_devices:
            return spec
        return inject(spec, read_specs(self._cdi), cdi_devices)

    def started(self, live: LiveContainer) -> LiveContainer:
        """Record a run of a container; return it with an ID that no other run has."""
        of = live.container
        attempt = self._attempts[of.pod_uid, of.name]
        self._attempts[of.pod_uid, of.name] += 1
        name = hashlib.sha256(f"{of.pod_uid}/{of.name}/{attempt}".encode()).hexdigest()
        live = replace(live, container=replace(of, container_id=ContainerID(name)))
        self._runs[live.container.container_id] = ContainerRun(live, attempt)
        return live

    def ended(self, container_id: ContainerID) -> None:
        """Keep it, as one that has exited."""
        self._runs[container_id] = replace(self._runs[container_id], running=False)

    def pod_removed(self, pod_uid: str) -> None:
        """Forget its containers."""
        self._runs = {
            name: run for name, run in self._runs.items() if run.live.container.pod_uid != pod_uid
        }

    async def version(self, request: pb.VersionRequest, context: Any) -> pb.VersionResponse:
        del context
        return pb.VersionResponse(
            version=request.version,
            runtime_name=NAME,
            runtime_version=self.kind.number,
            runtime_api_version=self._services[0].split(".")[1],
        )

    async def list_containers(
        self, request: pb.ListContainersRequest, context: Any
    ) -> pb.ListContainersResponse:
        del context
        wanted = request.filter
        rows = [
            pb.Container(**run.shown)
            for name, run in self._runs.items()
            if wanted.id in {"", name}
            and (not wanted.HasField("state") or wanted.state.state == run.shown["state"])
            and wanted.label_selector.items() <= run.labels.items()
        ]
        return pb.ListContainersResponse(containers=rows)

    async def container_status(
        self, request: pb.ContainerStatusRequest, context: Any
    ) -> pb.ContainerStatusResponse:
        run = self._runs.get(ContainerID(request.container_id))
        if run is None:
            name = f"an error occurred when try to find container {request.container_id!r}"
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{name}: not found")
            raise AssertionError("abort raises")
        live = run.live
        mounts = [pb.Mount(host_path=m.host, container_path=m.container) for m in live.mounts]
        status = pb.ContainerStatus(**run.shown, mounts=mounts)
        if not request.verbose:
            return pb.ContainerStatusResponse(status=status)
        info = {
            "pid": live.pid if run.running else 0,
            "config": {
                "envs": [{"key": key, "value": value} for key, value in live.envs.items()],
                "mounts": list(_binds(live.mounts)),
                "devices": list(_binds(live.devices)),
            },
            "runtimeSpec": {
                "process": {"env": [f"{key}={value}" for key, value in live.envs.items()]},
                "linux": {"devices": [{"path": one.container} for one in live.devices]},
            },
        }
        return pb.ContainerStatusResponse(status=status, info={"info": json.dumps(info)})

    async def status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        """Return what concerns CDI; a containerd that knows nothing of it does not say so."""
        del context
        config: dict[str, Any] = {}
        if self.kind != CONTAINERD_1_6:
            paths = [str(path) for path in self._cdi]
            config = {"enableCDI": self.kind.cdi, "cdiSpecDirs": paths}
        return pb.StatusResponse(info={"config": json.dumps(config)} if request.verbose else {})


def _binds(binds: Sequence[Bind]) -> Iterator[dict[str, str]]:
    return ({"host_path": one.host, "container_path": one.container} for one in binds)
