"""One resource's device plugin: what the kubelet calls, answered by the allocator.

The wire's messages become the allocator's values here and back, and its errors become statuses
whose text a user meets in the pod's events: a refusal is FAILED_PRECONDITION, a container that
cannot start yet UNAVAILABLE (the kubelet tries again), anything else INTERNAL.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from typing import Final, Never, TypeVar

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.errors import GpuManagerError
from gpumanager.grants.device_ids import Device
from gpumanager.grants.journal_file import JournalUnwritable
from gpumanager.grants.refusals import NotResolved, Refused
from gpumanager.grpc_wire import CallTimer, NoTimer, is_served, sockets_like

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

OPTIONS: Final = pb.DevicePluginOptions(
    pre_start_required=True, get_preferred_allocation_available=True
)
PERMISSIONS: Final = "rwm"
INSTANCE: Final = 4
"""Characters by which the sockets of two instances differ."""

SOCKET_PATH_LIMIT: Final = 107
"""Bytes of a unix socket's path, without the zero at its end."""


class CannotServe(GpuManagerError):
    """The plugin's socket or its list of devices is not possible."""


class ResourceServer:
    """Serves one resource on one socket, which has another name each time it is made.

    Example: for `vcore.sock`, `vcore-1f3a.sock`. A kubelet from 1.37 on keeps one endpoint for
    each path. It refuses a path that it is still connected to, and never takes that one again.
    """

    def __init__(
        self, allocator: Allocator, resource: str, name: Path, timer: CallTimer | None = None
    ) -> None:
        self.resource = resource
        self._timer = timer or NoTimer()
        self._name = name
        self.socket = name
        self._allocator = allocator
        self._server: grpc.aio.Server | None = None
        self._changed = asyncio.Event()
        self._stopped = False
        self._watchers = 0
        self.was_watched = False
        """Whether there was a stream since `expect_watcher`."""
        self._unwatched_since = time.monotonic()

    @property
    def serving(self) -> bool:
        return self._server is not None

    @property
    def unwatched(self) -> float | None:
        """Seconds since somebody should watch and nobody does; None while there is a stream."""
        return None if self._watchers else time.monotonic() - self._unwatched_since

    def expect_watcher(self) -> None:
        """Whoever was told of us should watch from now on."""
        self.was_watched = bool(self._watchers)
        self._unwatched_since = time.monotonic()

    async def start(self) -> None:
        """Serve on a fresh socket; those left over are removed. Raises CannotServe."""
        self.check()
        for path in sockets_like(self._name):
            if not is_served(path):
                path.unlink(missing_ok=True)
        self.socket = self._name.with_stem(f"{self._name.stem}-{secrets.token_hex(INSTANCE // 2)}")
        self._stopped = False
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((wire.device_plugin_handler(self),))
        try:
            server.add_insecure_port(f"unix:{self.socket}")
        except RuntimeError as error:
            raise CannotServe(f"{self.socket}: cannot listen: {error}") from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End the streams, then the server; safe to repeat."""
        self._stopped = True
        await self.refresh()
        if self._server is not None:
            await self._server.stop(grace=0.5)
            self._server = None
            with contextlib.suppress(OSError):
                self.socket.unlink(missing_ok=True)

    async def refresh(self) -> None:
        """The devices have changed: tell whoever watches."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def options(self, _request: pb.Empty, _context: wire.Context) -> pb.DevicePluginOptions:
        return OPTIONS

    async def list_and_watch(
        self, _request: pb.Empty, _context: wire.Context
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Once, and again after each change, until the kubelet leaves or we stop."""
        self._watchers += 1
        self.was_watched = True
        try:
            while not self._stopped:
                changed = self._changed
                yield _listed(self._allocator.devices(self.resource))
                await changed.wait()
        finally:
            self._watchers -= 1
            self._unwatched_since = time.monotonic()

    async def preferred(
        self, request: pb.PreferredAllocationRequest, context: wire.Context
    ) -> pb.PreferredAllocationResponse:
        responses = []
        for one in request.container_requests:
            answer = self._allocator.preferred(
                self.resource,
                one.available_deviceIDs,
                one.must_include_deviceIDs,
                one.allocation_size,
            )
            timed = self._timer.timed("GetPreferredAllocation", self.resource, answer)
            ids = await _answered(timed, context)
            responses.append(pb.ContainerPreferredAllocationResponse(deviceIDs=ids))
        return pb.PreferredAllocationResponse(container_responses=responses)

    async def allocate(
        self, request: pb.AllocateRequest, context: wire.Context
    ) -> pb.AllocateResponse:
        responses = []
        for one in request.container_requests:
            answer = self._allocator.allocate(self.resource, one.devices_ids)
            answer = self._timer.timed("Allocate", self.resource, answer)
            edits = await _answered(answer, context)
            if isinstance(edits, Refused):
                logger.info("refused: %s", edits.text)
                await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, edits.text)
            mounts = (
                pb.Mount(container_path=m.container_path, host_path=m.host_path, read_only=True)
                for m in edits.mounts
            )
            devices = (
                pb.DeviceSpec(
                    container_path=d.container_path, host_path=d.host_path, permissions=PERMISSIONS
                )
                for d in edits.devices
            )
            responses.append(
                pb.ContainerAllocateResponse(
                    envs=edits.envs,
                    annotations=edits.annotations,
                    mounts=mounts,
                    devices=devices,
                    cdi_devices=[pb.CDIDevice(name=name) for name in edits.cdi],
                )
            )
        return pb.AllocateResponse(container_responses=responses)

    async def pre_start(
        self, request: pb.PreStartContainerRequest, context: wire.Context
    ) -> pb.PreStartContainerResponse:
        answer = self._allocator.pre_start(self.resource, request.devices_ids)
        await _answered(self._timer.timed("PreStartContainer", self.resource, answer), context)
        return pb.PreStartContainerResponse()

    def check(self) -> None:
        """Raises CannotServe where no kubelet could take what would be served."""
        if len(str(self._name).encode()) + 1 + INSTANCE > SOCKET_PATH_LIMIT:
            raise CannotServe(
                f"{self._name}: with a suffix of {1 + INSTANCE} bytes longer than the "
                f"{SOCKET_PATH_LIMIT} bytes of a socket's path; shorten --device-plugin-path"
            )
        size = _listed(self._allocator.devices(self.resource)).ByteSize()
        if size > wire.MESSAGE_LIMIT:
            raise CannotServe(
                f"the list of {self.resource} devices takes {size} bytes; a kubelet accepts "
                f"{wire.MESSAGE_LIMIT} (4 MiB) in one message and would never list them"
            )


async def _answered(answer: Awaitable[_T], context: wire.Context) -> _T:
    """Return the answer; an error of ours or of the system ends the call with its text."""
    try:
        return await answer
    except NotResolved as error:
        await _abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
    except JournalUnwritable as error:
        logger.error("%s", error)  # noqa: TRY400 - it says all there is to say
        await _abort(context, grpc.StatusCode.INTERNAL, str(error))
    except (GpuManagerError, OSError) as error:
        logger.exception("cannot answer the kubelet")
        await _abort(context, grpc.StatusCode.INTERNAL, str(error))


async def _abort(context: wire.Context, status: grpc.StatusCode, text: str) -> Never:
    await context.abort(status, text)
    raise AssertionError("abort returned")  # pragma: no cover  # it always raises


def _listed(devices: Iterable[Device]) -> pb.ListAndWatchResponse:
    """Made in place: thousands of messages made one by one and copied take four times as long."""
    response = pb.ListAndWatchResponse()
    topologies: dict[int | None, pb.TopologyInfo | None] = {None: None}
    for one in devices:
        if one.numa_node not in topologies:
            topologies[one.numa_node] = pb.TopologyInfo(nodes=[pb.NUMANode(ID=one.numa_node)])
        response.devices.add(
            ID=one.device_id,
            health="Healthy" if one.healthy else "Unhealthy",
            topology=topologies[one.numa_node],
        )
    return response
