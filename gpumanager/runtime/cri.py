"""The container runtime, asked by CRI: which containers run, and what each was started with.

Both versions are tried in every call, the one understood last first, so that neither a runtime's
upgrade nor its restart needs one of the agent. Every call has a deadline. Only
recovery, names and the doctor wait for these answers: a process is known by its cgroup.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from gpumanager.errors import GpuManagerError
from gpumanager.ids import ContainerID
from gpumanager.runtime import wire
from gpumanager.runtime.api import runtime_v1_pb2 as pb
from gpumanager.runtime.status import container_of, live_container
from gpumanager.runtime.values import Container, LiveContainer

log = logging.getLogger(__name__)

TIMEOUT: Final = 5.0
PARALLEL_CALLS: Final = 8
"""How many containers are asked about at the same time."""

_T = TypeVar("_T")
Question = Callable[[wire.RuntimeClient], Awaitable[_T]]


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
        answer = await self._call(lambda client: client.version())
        cri, socket = self._services[0].split(".")[1], self._chosen or self._sockets[0]
        return RuntimeVersion(answer.runtime_name, answer.runtime_version, cri, socket)

    async def configuration(self) -> str:
        """Return JSON in the runtime's own form; empty where it reports none."""
        try:
            answer = await self._call(lambda client: client.status())
        except RuntimeUnavailable:
            return ""
        return answer.info.get("config", "")

    async def containers(self) -> tuple[Container, ...]:
        """Return the running containers of pods."""
        running = pb.ContainerFilter(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING))
        answer = await self._call(lambda client: client.list_containers(running))
        found = (container_of(row.id, row.labels) for row in answer.containers)
        return tuple(one for one in found if one is not None)

    async def status(self, container_id: ContainerID) -> LiveContainer | None:
        """Return its status; None for one that is unknown, that has ended, or that is of no pod."""
        try:
            answer = await self._call(lambda client: client.container_status(container_id))
        except _NotFound:
            return None
        return live_container(answer)

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

    async def _call(self, question: Question[_T]) -> _T:
        """Call the first socket that answers. Raises RuntimeUnavailable and _NotFound."""
        causes: list[str] = []
        for socket in await asyncio.to_thread(self._present):
            try:
                answer = await self._call_at(socket, question)
            except _Unanswered as cause:
                causes.append(f"{socket}: {cause}")
            else:
                self._chosen = socket
                return answer
        raise RuntimeUnavailable(causes or [f"{self._sockets[0]}: no such socket"])

    async def _call_at(self, socket: Path, question: Question[_T]) -> _T:
        """Try the version that was understood last, then the other one."""
        for service in self._services:
            if socket not in self._channels:
                self._channels[socket] = wire.dial(socket)
            client = wire.RuntimeClient(self._channels[socket], service, self._timeout)
            try:
                answer = await question(client)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise _failure(error, self._timeout) from error
            else:
                self._services = (service, *(one for one in self._services if one != service))
                return answer
        raise _Unanswered("speaks neither CRI v1 nor v1alpha2")

    def _present(self) -> tuple[Path, ...]:
        """Return the sockets to call: once one has answered, that one alone while it exists.

        Another runtime of the same node would answer too, and know of none of the pods.
        """
        if self._chosen is not None and self._chosen.exists():
            return (self._chosen,)
        return tuple(socket for socket in self._sockets if socket.exists())


class _NotFound(Exception):
    """The runtime knows no such container."""


class _Unanswered(Exception):
    """This socket is of no use now; why."""


def _failure(error: grpc.aio.AioRpcError, timeout: float) -> Exception:
    match error.code():
        case grpc.StatusCode.NOT_FOUND:
            return _NotFound()
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return _Unanswered(f"no answer within {timeout:g} s (--runtime-request-timeout)")
        case grpc.StatusCode.UNAVAILABLE:
            return _Unanswered("nobody answers who speaks gRPC")
        case code:
            return _Unanswered(f"{error.details()} ({code.name})")
