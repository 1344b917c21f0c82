"""Instances of DRA drivers: how they register, which is called, when their slices are deleted.

Follows pkg/kubelet/pluginmanager and cm/dra/plugin. Each socket in `plugins_registry` is asked who
it is, and told whether it is taken. The end of a socket is the end of its plugin, whoever still
listens; a socket that was made anew is a new plugin. One that does not answer, or is refused, is
asked again, half a second later and then twice as long each time.

A driver may have several instances, as a rolling update has two: the last one to register that is
connected is called, or the last one if none is. While none is, and for longer than 30 s, its
ResourceSlices are deleted; those of all drivers are when the kubelet starts.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from gpumanager.deviceplugin.registration import Identity, identity
from gpumanager.dra import wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.dra.api import pluginregistration_v1_pb2 as registration_pb
from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.sim.clock import NS, Timer
from gpumanager.sim.kubelet.dra.claims import ClaimRefused
from gpumanager.sim.kubelet.plugins import cancel

LOOK_SECONDS: Final = 0.02
"""Between two looks at the directory."""
DIAL_SECONDS: Final = 10.0
INFO_SECONDS: Final = 1.0
NOTIFY_SECONDS: Final = 5.0
FIRST_BACK_OFF: Final = 0.5
LONGEST_BACK_OFF: Final = 122.0
"""Seconds between attempts to register a plugin, doubled each time."""
CALL_SECONDS: Final = 45.0
WIPE_SECONDS: Final = 30.0
"""A driver that comes back in this time keeps its slices."""
STREAM_SECONDS: Final = 5.0
"""Between the end of a stream of health and the next attempt."""
WIPE_AGAIN_SECONDS: Final = 1.0

T = TypeVar("T")

OnHealth = Callable[[str, Sequence[health_pb.DeviceHealth] | None], None]
"""A driver and its report; None: its stream has ended."""


class RegistrationRefused(GpuManagerError):
    """A plugin that the kubelet does not take; in its words."""


class DriverInstance:
    """One registered instance. service, health: as advertised; health: empty for none."""

    def __init__(self, driver: str, endpoint: str, service: str, health: str) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.connected = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.channel = wire.dial(Path(endpoint))
        self._client = wire.DRAPluginClient(
            self.channel, service, health or next(iter(wire.HEALTH_SERVICES))
        )

    async def prepare(self, claims: Sequence[pb.Claim]) -> pb.NodePrepareResourcesResponse:
        """Prepare them; raises ClaimRefused."""
        request = pb.NodePrepareResourcesRequest(claims=claims)
        return await _answer("NodePrepareResources", self._client.prepare(request, CALL_SECONDS))

    async def unprepare(self, claims: Sequence[pb.Claim]) -> pb.NodeUnprepareResourcesResponse:
        """Unprepare them; raises ClaimRefused."""
        request = pb.NodeUnprepareResourcesRequest(claims=claims)
        return await _answer(
            "NodeUnprepareResources", self._client.unprepare(request, CALL_SECONDS)
        )

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Keep it connected, and call `on_change` at every change; does not return."""
        while True:
            state = self.channel.get_state(try_to_connect=True)
            connected = state is grpc.ChannelConnectivity.READY
            if connected != self.connected.is_set():
                (self.connected.set if connected else self.connected.clear)()
                on_change()
            await self.channel.wait_for_state_change(state)

    @property
    def answers(self) -> bool:
        """Return whether it is connected, also now: `follow` may not have been woken yet."""
        ready = self.channel.get_state() is grpc.ChannelConnectivity.READY
        return ready and self.connected.is_set()

    async def watch(self, on_health: OnHealth, timer: Timer) -> None:
        """Follow its reports of health; does not return."""
        while True:
            await self.connected.wait()
            with contextlib.suppress(grpc.aio.AioRpcError):
                try:
                    async for report in self._client.watch():
                        on_health(self.driver, report.devices)
                finally:
                    on_health(self.driver, None)
            await timer.sleep_until(timer.now() + round(STREAM_SECONDS * NS))


class DriverRegistry:
    """directory: `plugins_registry`, which it makes and watches. health: services that the kubelet
    can watch, the most wanted first. delete_slices: of this node, of one driver or, for an empty
    name, of all."""

    def __init__(
        self,
        directory: Path,
        health: Sequence[str],
        timer: Timer,
        delete_slices: Callable[[str], Awaitable[None]],
        on_health: OnHealth,
    ) -> None:
        self._directory = directory
        self._health = health
        self._timer = timer
        self._delete_slices = delete_slices
        self._on_health = on_health
        self._instances = defaultdict[str, list[DriverInstance]](list)
        """By driver, in the order of their registration."""
        self._sockets: dict[Path, tuple[Identity, asyncio.Task[None]]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._wipes[""] = asyncio.create_task(self._wipe("", 0))
        self._tasks = [asyncio.create_task(self._watch())]

    async def stop(self) -> None:
        await cancel(self._tasks)
        await cancel(task for _, task in self._sockets.values())
        self._sockets.clear()
        await cancel(self._wipes.values())
        self._wipes.clear()

    def get(self, driver: str) -> DriverInstance:
        """Return the instance to call; raises ClaimRefused."""
        instances = self._instances[driver]
        if not instances:
            raise ClaimRefused(f"DRA driver {driver} is not registered")
        return ([one for one in instances if one.answers] or instances)[-1]

    async def connected(self, driver: str) -> None:
        """Wait until an instance is connected."""
        while not any(one.connected.is_set() for one in self._instances[driver]):
            await self._changed.wait()

    async def _watch(self) -> None:
        """Follow which sockets there are."""
        while True:
            there = {
                path: found
                for path in sorted(self._directory.glob("[!.]*"))
                if path.is_socket() and (found := identity(path)) is not None
            }
            known = tuple(self._sockets.items())
            if gone := [path for path, (before, _) in known if there.get(path) != before]:
                await cancel(self._sockets.pop(path)[1] for path in gone)
                continue  # what has changed meanwhile
            for path in there.keys() - self._sockets.keys():
                task = asyncio.create_task(self._keep_registered(path))
                self._sockets[path] = there[path], task
            await asyncio.sleep(LOOK_SECONDS)

    async def _keep_registered(self, path: Path) -> None:
        """Run until cancelled, which is when its socket ends."""
        back_off = FIRST_BACK_OFF
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError, RegistrationRefused):
                await self._register(path)
            await self._timer.sleep_until(self._timer.now() + round(back_off * NS))
            back_off = min(back_off * 2, LONGEST_BACK_OFF)

    async def _register(self, path: Path) -> None:
        """Register a plugin, until cancelled; raises AioRpcError, TimeoutError,
        RegistrationRefused."""
        async with contextlib.AsyncExitStack() as last_first:
            async with wire.dial(path) as channel:
                async with asyncio.timeout(DIAL_SECONDS):
                    await channel.channel_ready()
                client = wire.DRAPluginClient(channel)
                info = await client.get_info(INFO_SECONDS)
                told = registration_pb.RegistrationStatus(plugin_registered=True)
                try:
                    instance = self._take(info, path)
                except RegistrationRefused as refused:
                    error = f"RegisterPlugin error -- {refused}"
                    told = registration_pb.RegistrationStatus(error=error)
                    await client.notify(told, NOTIFY_SECONDS)
                    raise
                last_first.push_async_callback(self._drop, instance)
                await client.notify(told, NOTIFY_SECONDS)
            await asyncio.Event().wait()

    def _take(self, info: registration_pb.PluginInfo, path: Path) -> DriverInstance:
        """Return a new instance: the first service that it names and is known here is called."""
        driver, endpoint = info.name, info.endpoint or str(path)
        service = next((one for one in info.supported_versions if one in wire.PLUGIN_SERVICES), "")
        if not service or info.type != wire.PLUGIN_TYPE:
            raise RegistrationRefused(
                f"{info.type} {driver} at {path} has no service for a kubelet"
            )
        if endpoint in {one.endpoint for one in self._instances[driver]}:
            raise RegistrationRefused(
                f"plugin registration failed with err: endpoint {endpoint} already registered for "
                f"DRA driver plugin {driver}"
            )
        health = next((one for one in self._health if one in info.supported_versions), "")
        instance = DriverInstance(driver, endpoint, service, health)
        self._instances[driver].append(instance)
        following = [instance.follow(lambda: self._sync(driver))]
        if health:
            following.append(instance.watch(self._on_health, self._timer))
        instance.tasks = [asyncio.create_task(one) for one in following]
        self._sync(driver)
        return instance

    async def _drop(self, instance: DriverInstance) -> None:
        self._instances[instance.driver].remove(instance)
        self._sync(instance.driver)
        await cancel(instance.tasks)
        await instance.channel.close(None)

    def _sync(self, driver: str) -> None:
        """Start or cancel the deletion of slices, after every change of an instance."""
        before, self._changed = self._changed, asyncio.Event()
        before.set()
        if any(one.connected.is_set() for one in self._instances[driver]):
            if wipe := self._wipes.pop(driver, None):
                wipe.cancel()
        elif driver not in self._wipes:
            self._wipes[driver] = asyncio.create_task(self._wipe(driver, WIPE_SECONDS))

    async def _wipe(self, driver: str, seconds: float) -> None:
        """Delete a driver's slices, once for each time that the driver is away."""
        await self._timer.sleep_until(self._timer.now() + round(seconds * NS))
        while True:
            with contextlib.suppress(ApiUnavailable, ApiRefused):
                await self._delete_slices(driver)
                return
            await self._timer.sleep_until(self._timer.now() + round(WIPE_AGAIN_SECONDS * NS))


async def _answer(what: str, call: Awaitable[T]) -> T:
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The channel was closed under the call. Example: the driver's socket is removed from the
        # registry while it prepares.
        closing = "grpc: the client connection is closing"
        raise ClaimRefused(f"{what}: rpc error: code = Canceled desc = {closing}") from None
    except grpc.aio.AioRpcError as error:
        code = "".join(word.title() for word in error.code().name.split("_"))
        raise ClaimRefused(f"{what}: rpc error: code = {code} desc = {error.details()}") from error
