"""A DRA driver for tests of kubelets: answers as it is told and remembers every call."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.dra import wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.dra.api import pluginregistration_v1_pb2 as registration_pb

KIND = "contract.example/thing"
VERSIONS = (*wire.PLUGIN_SERVICES, *wire.HEALTH_SERVICES)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of prepare or unprepare. service: as advertised. claims: by name, their UIDs."""

    name: str
    service: str
    claims: Mapping[str, str]
    namespaces: frozenset[str] = field(default=frozenset())


class StubDriver:
    """One instance. versions, advertises: what it says of itself when it registers.

    devices: what it prepares for a claim, by the claim's name. refuse: errors, by the same name.
    answer: what becomes of a response of prepare. told: what it heard of its registration.
    watchers: services by which its health is watched now; watched: ever; health: what they hear.
    """

    def __init__(self, root: Path, cdi: Path, name: str, instance: str = "") -> None:
        self.name = name
        self.versions: Sequence[str] = VERSIONS
        self.endpoint = self.advertises = root / "plugins" / name / f"dra{instance}.sock"
        self.door = root / "plugins_registry" / f"{name}{instance}-reg.sock"
        self.devices: dict[str, Sequence[pb.Device]] = {}
        self.refuse: dict[str, str] = {}
        self.answer: Callable[
            [pb.NodePrepareResourcesResponse], pb.NodePrepareResourcesResponse
        ] = lambda response: response
        self.during_prepare: Callable[[], Any] | None = None
        self.during_unprepare: Callable[[], Any] | None = None
        self.asked = 0
        self.told: list[tuple[bool, str]] = []
        self.calls: list[Call] = []
        self.watchers: list[str] = []
        self.watched: list[str] = []
        self.serves_health = True
        self.health: dict[str, health_pb.DeviceHealth] = {}
        self._changed = asyncio.Event()
        self._cdi = cdi
        self._servers: dict[Path, grpc.aio.Server] = {}

    async def start(self) -> None:
        """Serve, then be there for the kubelet's watcher."""
        await self.serve()
        await self.open_door()

    async def stop(self) -> None:
        """As a process that ends well: its socket in the registry goes first."""
        self.door.unlink(missing_ok=True)
        for socket in tuple(self._servers):
            await self._end(socket)

    async def hang_up(self) -> None:
        """As a process that hangs or dies: nobody answers, its socket in the registry stays."""
        await self._end(self.endpoint)

    async def serve(self) -> None:
        handlers = [
            grpc_wire.handler(
                service,
                {
                    wire.PREPARE: partial(self._prepare, advertised),
                    wire.UNPREPARE: partial(self._unprepare, advertised),
                },
            )
            for advertised, service in wire.PLUGIN_SERVICES.items()
        ]
        if self.serves_health:
            handlers += [
                grpc_wire.handler(service, {wire.WATCH: partial(self._watch, advertised)})
                for advertised, service in wire.HEALTH_SERVICES.items()
            ]
        await self._listen(self.endpoint, *handlers)

    async def open_door(self) -> None:
        await self._listen(self.door, wire.registration_handler(self))

    async def replace_door(self) -> None:
        """Its socket in the registry is another one, without a moment in which there is none."""
        hidden = self.door.with_name(f".{self.door.name}")
        await self._listen(hidden, wire.registration_handler(self))
        hidden.rename(self.door)

    async def get_info(self, request: Any, context: Any) -> registration_pb.PluginInfo:
        self.asked += 1
        return registration_pb.PluginInfo(
            type=wire.PLUGIN_TYPE,
            name=self.name,
            endpoint=str(self.advertises),
            supported_versions=self.versions,
        )

    async def notify(
        self, request: registration_pb.RegistrationStatus, context: Any
    ) -> registration_pb.RegistrationStatusResponse:
        self.told.append((request.plugin_registered, request.error))
        return registration_pb.RegistrationStatusResponse()

    def called(self, name: str) -> list[Call]:
        return [call for call in self.calls if call.name == name]

    def prepared(self) -> list[set[str]]:
        """Names of claims, for each call."""
        return [set(call.claims) for call in self.called("prepare")]

    def unprepared(self) -> list[set[str]]:
        return [set(call.claims) for call in self.called("unprepare")]

    def report(self, device: str, health: int, message: str = "") -> None:
        self.health[device] = health_pb.DeviceHealth(
            device=health_pb.DeviceIdentifier(pool_name="pool", device_name=device),
            health=health,  # type: ignore[arg-type]
            message=message,
        )
        self._changed.set()

    def device(
        self, name: str, *requests: str, cdi: str | None = None, env: Mapping[str, str] = {}
    ) -> pb.Device:
        """A device of its pool; `cdi`: and a spec file with that device and its variables."""
        ids = []
        if cdi is not None:
            self._write_spec(cdi, env or {f"HAS_{cdi.upper().replace('-', '_')}": "1"})
            ids.append(f"{KIND}={cdi}")
        return pb.Device(
            request_names=requests, pool_name="pool", device_name=name, cdi_device_ids=ids
        )

    def _write_spec(self, device: str, env: Mapping[str, str]) -> None:
        edits = {"env": [f"{name}={value}" for name, value in env.items()]}
        row = {"name": device, "containerEdits": edits}
        spec = {"cdiVersion": "0.6.0", "kind": KIND, "devices": [row]}
        self._cdi.mkdir(parents=True, exist_ok=True)
        path = self._cdi / f"{self.name}-{device}.json"
        path.with_suffix(".new").write_text(json.dumps(spec))
        path.with_suffix(".new").rename(path)

    async def _prepare(
        self, service: str, request: pb.NodePrepareResourcesRequest, context: Any
    ) -> pb.NodePrepareResourcesResponse:
        self._remember("prepare", service, request.claims)
        if self.during_prepare is not None:
            await self.during_prepare()
        response = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            row = response.claims[claim.uid]
            row.error = self.refuse.get(claim.name, "")
            row.devices.extend(self.devices.get(claim.name, ()))
        return self.answer(response)

    async def _unprepare(
        self, service: str, request: pb.NodeUnprepareResourcesRequest, context: Any
    ) -> pb.NodeUnprepareResourcesResponse:
        self._remember("unprepare", service, request.claims)
        if self.during_unprepare is not None:
            await self.during_unprepare()
        response = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            response.claims[claim.uid].error = self.refuse.get(claim.name, "")
        return response

    def _remember(self, name: str, service: str, claims: Sequence[pb.Claim]) -> None:
        uids = {claim.name: claim.uid for claim in claims}
        namespaces = frozenset(claim.namespace for claim in claims)
        self.calls.append(Call(name, service, uids, namespaces))

    async def _watch(
        self, service: str, request: Any, context: Any
    ) -> AsyncIterator[health_pb.NodeWatchResourcesResponse]:
        self.watchers.append(service)
        self.watched.append(service)
        try:
            while True:
                self._changed.clear()
                yield health_pb.NodeWatchResourcesResponse(devices=self.health.values())
                await self._changed.wait()
        finally:
            self.watchers.remove(service)

    async def _listen(self, socket: Path, *handlers: Any) -> None:
        await self._end(socket)
        _make_way(socket)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(handlers)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._servers[socket] = server

    async def _end(self, socket: Path) -> None:
        if server := self._servers.pop(socket, None):
            await server.stop(None)


def _make_way(socket: Path) -> None:
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
