"""The container runtime, asked by CRI: which containers run, and what each was started with.

Both versions are tried in every call, the one understood last first, so that neither a runtime's
upgrade nor its restart needs one of the agent. Every call has a deadline. Only
recovery, names and the doctor wait for these answers: a process is known by its cgroup.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.grpc_wire import Method, Request, Response
from gpumanager.ids import ContainerID
from gpumanager.runtime import wire
from gpumanager.runtime.api import runtime_v1_pb2 as pb
from gpumanager.runtime.status import Container, LiveContainer, container_of, live_container

KNOWN: Final = (
    Path("/var/run/dockershim.sock"),
    Path("/run/cri-dockerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
    Path("/run/k0s/containerd.sock"),
    Path("/var/snap/microk8s/common/run/containerd.sock"),
    Path("/run/containerd/containerd.sock"),
)
"""Where runtimes listen, in the order in which the kubelet looks. dockershim and cri-dockerd have a
socket only where a kubelet works through them; containerd listens wherever Docker is installed."""

_SCHEME: Final = "unix://"


def parse_endpoint(text: str, flag: str = "--container-runtime-endpoint") -> Path:
    """Read `/run/….sock`, `unix:///run/….sock`, or Docker's `unix:////run/….sock`.

    Raises InputError.
    """
    path = text.removeprefix(_SCHEME)
    if "://" in path or not path.startswith("/"):
        raise InputError(flag, f"{text!r} is not the path of a socket; write {_SCHEME}/run/….sock")
    return Path("/" + path.lstrip("/"))


def candidates(asked: Path | None, docker: Path | None = None) -> tuple[Path, ...]:
    """Return the sockets to try, in order: the user's alone, if one is given.

    docker: of the flag that gpu-manager had before there was CRI. It may be Docker's own socket,
    where nothing speaks CRI, so that the known ones follow.
    """
    if asked is not None:
        return (asked,)
    return KNOWN if docker is None else (docker, *KNOWN)


log = logging.getLogger(__name__)

TIMEOUT: Final = 5.0
PARALLEL_CALLS: Final = 8
"""How many containers are asked about at the same time."""
AS_THE_KUBELET: Final = pb.VersionRequest(version="0.1.0")


class RuntimeUnavailable(GpuManagerError):
    """No container runtime answers: which sockets were tried, and what each said."""

    def __init__(self, causes: Sequence[str]) -> None:
        super().__init__(
            f"no container runtime answers ({'; '.join(causes)}); "
            "check --container-runtime-endpoint, and that the agent sees that directory of the host"
        )


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """Which runtime answers, where, and in which version of CRI: `v1` or `v1alpha2`."""

    name: str
    version: str
    cri: str
    socket: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version} (CRI {self.cri}) at {self.socket}"


class ContainerRuntime:
    """Asks the first of `sockets` where CRI is spoken. Close it in the end."""

    def __init__(self, sockets: Sequence[Path], timeout: float = TIMEOUT) -> None:
        self._sockets = tuple(sockets)
        self._services: tuple[str, ...] = wire.SERVICES
        self._timeout = timeout
        self._chosen: Path | None = None
        self._channels: dict[Path, grpc.aio.Channel] = {}
        self._listed: dict[ContainerID, LiveContainer] = {}
        """By the last list: what a container was started with never changes."""

    async def version(self) -> RuntimeVersion:
        """Return its version. Raises RuntimeUnavailable, as all of these do."""
        answer = await self._call(wire.VERSION, AS_THE_KUBELET)
        cri, socket = self._services[0].split(".")[1], self._chosen or self._sockets[0]
        return RuntimeVersion(answer.runtime_name, answer.runtime_version, cri, socket)

    async def configuration(self) -> str:
        """Return JSON in the runtime's own form; empty where it reports none."""
        try:
            answer = await self._call(wire.STATUS, pb.StatusRequest(verbose=True))
        except RuntimeUnavailable:
            return ""
        return answer.info.get("config", "")

    async def containers(self) -> tuple[Container, ...]:
        """Return the running containers of pods."""
        running = pb.ContainerFilter(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING))
        request = pb.ListContainersRequest(filter=running)
        answer = await self._call(wire.LIST_CONTAINERS, request)
        found = (container_of(row.id, row.labels) for row in answer.containers)
        return tuple(one for one in found if one is not None)

    async def status(self, container_id: ContainerID) -> LiveContainer | None:
        """Return its status; None for one that is unknown, that has ended, or that is of no pod."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        try:
            answer = await self._call(wire.CONTAINER_STATUS, request)
        except _NotFound:
            return None
        return live_container(answer)

    async def name_of(self, container_id: str) -> str | None:
        """Return its name in its pod; None for one that does not run."""
        found = await self.status(ContainerID(container_id))
        return None if found is None else found.container.name

    async def list(self) -> tuple[LiveContainer, ...]:
        """Return all that run, with what they were started with."""
        gate, known = asyncio.Semaphore(PARALLEL_CALLS), self._listed

        async def one(name: ContainerID) -> LiveContainer | None:
            async with gate:
                return known.get(name) or await self.status(name)

        names = [row.container_id for row in await self.containers()]
        found = zip(names, await asyncio.gather(*map(one, names)), strict=True)
        self._listed = {name: row for name, row in found if row is not None}
        return tuple(self._listed.values())

    async def log_version(self) -> None:
        """Log which runtime answers, or that none does."""
        try:
            log.info("container runtime: %s", await self.version())
        except RuntimeUnavailable as error:
            log.warning("%s", error)

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)

    async def _call(self, method: Method[Request, Response], request: Request) -> Response:
        """Call the first socket that answers, in the version that was understood last, then in the
        other one. Raises RuntimeUnavailable and _NotFound."""
        causes: list[str] = []
        for socket in await asyncio.to_thread(self._present):
            cause = "speaks neither CRI v1 nor v1alpha2"
            for service in self._services:
                if socket not in self._channels:
                    self._channels[socket] = wire.dial(socket)
                channel = self._channels[socket]
                try:
                    answer = await grpc_wire.call(channel, service, method, request, self._timeout)
                except grpc.aio.AioRpcError as error:
                    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                        continue
                    if error.code() is grpc.StatusCode.NOT_FOUND:
                        raise _NotFound from error
                    cause = self._cause(error)
                    break
                self._services = (service, *(one for one in self._services if one != service))
                self._chosen = socket
                return answer
            causes.append(f"{socket}: {cause}")
        raise RuntimeUnavailable(causes or [f"{self._sockets[0]}: no such socket"])

    def _cause(self, error: grpc.aio.AioRpcError) -> str:
        match error.code():
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"no answer within {self._timeout:g} s (--runtime-request-timeout)"
            case grpc.StatusCode.UNAVAILABLE:
                return "nobody answers who speaks gRPC"
            case code:
                return f"{error.details()} ({code.name})"

    def _present(self) -> tuple[Path, ...]:
        """Return the sockets to call: once one has answered, that one alone while it exists.

        Another runtime of the same node would answer too, and know of none of the pods.
        """
        if self._chosen is not None and self._chosen.exists():
            return (self._chosen,)
        return tuple(socket for socket in self._sockets if socket.exists())


class _NotFound(Exception):
    """The runtime knows no such container."""
