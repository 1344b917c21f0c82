"""The DRA plugin: serves the driver and keeps it registered with the kubelet.

    <kubelet>/plugins/gpu.tencent.com/dra-<instance>.sock           DRAPlugin and health
    <kubelet>/plugins_registry/gpu.tencent.com-<instance>-reg.sock  found by the kubelet

Each instance has its own sockets, so a new agent can register before the old one ends: the kubelet
keeps both and calls the newest. The kubelet connects to the plugin, not the reverse; it may start
later than the plugin, and restart.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager.dra import wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import pluginregistration_v1_pb2 as registration_pb
from gpumanager.dra.driver import ClaimDriver, ClaimRef
from gpumanager.dra.health import HealthService
from gpumanager.errors import GpuManagerError
from gpumanager.grants.refusals import Refused
from gpumanager.grpc_wire import CallTimer, NoTimer, PluginStanding, is_served
from gpumanager.names import CLAIM_DRIVER, CLAIM_REGISTRATIONS
from gpumanager.supervisor import Supervisor

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two checks whether our socket is still in the kubelet's directory."""
OBSTACLE_SECONDS: Final = 5.0
"""Between two checks for an obstacle while there is one."""
LOOKS_PER_OBSTACLE_CHECK: Final = 30
"""Checks of the socket between two for an obstacle."""
OBSTACLES_IN_A_ROW: Final = 2
"""Such checks in a row that have to find one."""
DRAIN_SECONDS: Final = 45.0
"""The kubelet waits no longer for a call (pkg/kubelet/cm/dra/plugin/dra_plugin.go)."""
SERVICES: Final = "dra-*.sock"
SOCKET_PATH_LIMIT: Final = 107
"""Bytes of a unix socket's path, without the zero at its end."""


class CannotListen(GpuManagerError):
    """The plugin's sockets are not possible."""


class NotRegistered(GpuManagerError):
    """No kubelet has taken the driver yet; why, as far as known."""


async def no_obstacle() -> str:
    """Report no obstacle."""
    return ""


async def _is_set(event: asyncio.Event, within: float) -> bool:
    """Wait for the event; return False after `within` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            return await event.wait()
    return False


@dataclass(frozen=True, slots=True)
class PluginSockets:
    """The sockets of one instance."""

    service: Path
    registration: Path

    @classmethod
    def under(cls, plugins: Path, registry: Path, instance: str = "") -> "PluginSockets":
        """plugins, registry: the kubelet's directories. instance: by default a new one."""
        instance = instance or secrets.token_hex(4)
        service = plugins / CLAIM_DRIVER / f"dra-{instance}.sock"
        return cls(service, registry / f"{CLAIM_DRIVER}-{instance}-reg.sock")

    def check(self) -> None:
        """Raise CannotListen if a path is too long for a socket."""
        for path in (self.service, self.registration):
            if len(str(path).encode()) > SOCKET_PATH_LIMIT:
                raise CannotListen(
                    f"{path}: longer than the {SOCKET_PATH_LIMIT} bytes of a socket's path"
                )

    def exist(self) -> bool:
        return self.service.exists() and self.registration.exists()

    def make_room(self) -> None:
        """Make their directories, and remove the sockets of instances that have died."""
        for path, others in ((self.service, SERVICES), (self.registration, CLAIM_REGISTRATIONS)):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CannotListen(f"{path.parent}: {error.strerror}") from error
            for other in path.parent.glob(others):
                if other.is_socket() and not is_served(other):
                    other.unlink(missing_ok=True)


class ClaimPlugin:
    """Serves `driver`. obstacle: returns why no kubelet may find us; called until it is empty, and
    periodically later.

    refused: called with each claim that was not prepared, and why.
    """

    def __init__(
        self,
        driver: ClaimDriver,
        health: HealthService,
        sockets: PluginSockets,
        *,
        timer: CallTimer | None = None,
        obstacle: Callable[[], Awaitable[str]] = no_obstacle,
        refused: Callable[[ClaimRef, str], None] = lambda _claim, _text: None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._driver, self._health, self.sockets = driver, health, sockets
        self._timer, self._obstacle, self._refused = timer or NoTimer(), obstacle, refused
        self._supervisor = supervisor or Supervisor()
        self._failure: CannotListen | None = None
        self._servers: list[grpc.aio.Server] = []
        self.listening = asyncio.Event()
        """Whether a kubelet can find us."""
        self.hindered = False
        """Whether there is an obstacle that came after we had served."""
        self._known = asyncio.Event()
        self._said = ""
        """The obstacle, or the kubelet's error when it did not register us."""

    @property
    def standings(self) -> tuple[PluginStanding, ...]:
        """Return how the driver stands with the kubelet now."""
        served, registered = self.listening.is_set(), self._known.is_set()
        return (PluginStanding(CLAIM_DRIVER, served, registered, self._said or None),)

    async def start(self) -> None:
        """Serve from now on, while there is no obstacle. Raises CannotListen."""
        self.sockets.check()
        self._supervisor.keep("DRA plugin", self._keep)

    async def served(self, within: float) -> None:
        """Wait until we listen. Raises what keeps us from it, after `within` seconds."""
        while not await _is_set(self.listening, within):
            if self._failure is not None:
                raise self._failure

    async def registered(self, within: float) -> None:
        """Wait until a kubelet has registered us; raise NotRegistered after `within` s."""
        if not await _is_set(self._known, within):
            raise NotRegistered(self._said or f"no kubelet within {within:g} s")

    def register_anew(self) -> None:
        """Make the sockets anew, though nothing seems to have changed."""
        self.sockets.registration.unlink(missing_ok=True)

    async def refresh(self) -> None:
        """Send the kubelet the health of the GPUs again."""
        self._health.changed()

    async def stop(self) -> None:
        """Leave: the kubelet forgets us, then the calls under way end. Safe to repeat."""
        await self._supervisor.stop()
        self.sockets.registration.unlink(missing_ok=True)
        self._health.stop()
        await self._close()

    async def drain(self) -> None:
        """Take no more calls, and end those under way: another instance is registered.

        Before `stop`; the tasks of the supervisor have ended.
        """
        self._health.stop()
        await asyncio.gather(*(one.stop(grace=DRAIN_SECONDS) for one in self._servers))
        await self._driver.finished()

    async def _keep(self) -> None:
        """Serve while there is no obstacle, for as long as the task lives."""
        while True:
            while hindered := await self._obstacle():
                if hindered != self._said:
                    log.error("%s is not registered: %s", CLAIM_DRIVER, hindered)
                self._said = hindered
                await asyncio.sleep(OBSTACLE_SECONDS)
            self._said = ""
            if self.hindered:
                self.hindered = False
                self._driver.node.notify()
            await self._serve()
            self.hindered = True
            self._driver.node.notify()

    async def _serve(self) -> None:
        """Listen until there is an obstacle, and again after a socket was removed.

        Example: containerd was restarted with another configuration, without CDI. A runtime that
        is restarting does not answer either, so one failed check does not count.
        """
        handlers = wire.plugin_handlers(self, self._health)
        hindered = 0
        while hindered < OBSTACLES_IN_A_ROW:
            for _ in range(LOOKS_PER_OBSTACLE_CHECK):
                if not self.sockets.exist():
                    if self._servers:
                        log.warning("%s was removed; listening again", self.sockets.registration)
                    await self._close()
                    self.sockets.make_room()
                    try:
                        await self._listen(self.sockets.service, *handlers)
                        registration = wire.registration_handler(self)
                        await self._listen(self.sockets.registration, registration)
                    except CannotListen as error:
                        self._failure = error
                        raise
                    self.listening.set()
                await asyncio.sleep(LOOK_SECONDS)
            hindered = hindered + 1 if await self._obstacle() else 0
        await self._close()

    async def get_info(
        self, _request: registration_pb.InfoRequest, _context: wire.Context
    ) -> registration_pb.PluginInfo:
        return registration_pb.PluginInfo(
            type=wire.PLUGIN_TYPE,
            name=CLAIM_DRIVER,
            endpoint=str(self.sockets.service),
            supported_versions=[*wire.PLUGIN_SERVICES, *wire.HEALTH_SERVICES],
        )

    async def notify(
        self, request: registration_pb.RegistrationStatus, _context: wire.Context
    ) -> registration_pb.RegistrationStatusResponse:
        if request.plugin_registered:
            log.info("registered with the kubelet as %s", CLAIM_DRIVER)
            self._known.set()
            self._said = ""
        else:
            log.error("the kubelet does not register %s: %s", CLAIM_DRIVER, request.error)
            self._known.clear()
            self._said = request.error
        return registration_pb.RegistrationStatusResponse()

    async def prepare(
        self, request: pb.NodePrepareResourcesRequest, _context: wire.Context
    ) -> pb.NodePrepareResourcesResponse:
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            ref = ClaimRef(claim.namespace, claim.name, claim.uid)
            prepared = answer.claims[claim.uid]
            # An error is the user's to read, in the pod's events; the kubelet tries again.
            try:
                work = self._driver.prepare(ref)
                devices = await self._timer.timed(wire.PREPARE.name, CLAIM_DRIVER, work)
            except (GpuManagerError, OSError) as error:
                log.warning("claim %s is not prepared: %s", ref, error)
                prepared.error = str(error) or type(error).__name__  # empty would say: prepared
            else:
                if isinstance(devices, Refused):
                    log.info("claim %s is refused: %s", ref, devices.text)
                    prepared.error = devices.text
                else:
                    prepared.devices.extend(devices)
            if prepared.error:
                self._refused(ref, prepared.error)
        return answer

    async def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, _context: wire.Context
    ) -> pb.NodeUnprepareResourcesResponse:
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            ref = ClaimRef(claim.namespace, claim.name, claim.uid)
            unprepared = answer.claims[claim.uid]
            try:
                work = self._driver.unprepare(ref)
                await self._timer.timed(wire.UNPREPARE.name, CLAIM_DRIVER, work)
            except (GpuManagerError, OSError) as error:
                log.warning("claim %s is not unprepared: %s", ref, error)
                unprepared.error = str(error) or type(error).__name__
        return answer

    async def _listen(self, path: Path, *handlers: "grpc.GenericRpcHandler[Any, Any]") -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(handlers)
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise CannotListen(f"{path}: cannot listen: {error}") from error
        await server.start()
        self._servers.append(server)

    async def _close(self) -> None:
        self._known.clear()
        self.listening.clear()
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(grace=0.5)
        for path in (self.sockets.registration, self.sockets.service):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
