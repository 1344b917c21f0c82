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
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from gpumanager.deviceplugin.changes import Inotify
from gpumanager.deviceplugin.registration import Identity, identity
from gpumanager.dra import wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.dra.api import pluginregistration_v1_pb2 as registration_pb
from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.sim.clock import NS, Timer
from gpumanager.sim.kubelet.dra.claims import ClaimRefused
from gpumanager.sim.kubelet.versions import DraBehavior

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
        self.service = service
        self.health = health
        self.connected = asyncio.Event()
        self._channel = wire.dial(Path(endpoint))
        self._client = wire.DRAPluginClient(
            self._channel, service, health or next(iter(wire.HEALTH_SERVICES))
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
            state = self._channel.get_state(try_to_connect=True)
            connected = state is grpc.ChannelConnectivity.READY
            if connected != self.connected.is_set():
                (self.connected.set if connected else self.connected.clear)()
                on_change()
            await self._channel.wait_for_state_change(state)

    @property
    def answers(self) -> bool:
        """Return whether it is connected now: `follow` may not have been woken yet."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

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

    async def close(self) -> None:
        await self._channel.close(None)


class DriverRegistry:
    """delete_slices: of this node, of one driver or, for an empty name, of all."""

    def __init__(
        self,
        behavior: DraBehavior,
        timer: Timer,
        delete_slices: Callable[[str], Awaitable[None]],
        on_health: OnHealth,
    ) -> None:
        self._behavior = behavior
        self._timer = timer
        self._delete_slices = delete_slices
        self._on_health = on_health
        self._instances: dict[str, list[DriverInstance]] = {}
        """By driver, in the order of their registration."""
        self._tasks: dict[DriverInstance, list[asyncio.Task[None]]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def start(self) -> None:
        self._wipes[""] = asyncio.create_task(self._wipe("", 0))

    async def stop(self) -> None:
        for driver, instances in tuple(self._instances.items()):
            for instance in tuple(instances):
                await self.deregister(driver, instance.endpoint)
        wipes, self._wipes = self._wipes, {}
        await _cancel(wipes.values())

    def register(self, info: registration_pb.PluginInfo, path: Path) -> str:
        """Register an instance: the first service that it names and is known here is called.

        Return its endpoint; raises RegistrationRefused.
        """
        driver, endpoint = info.name, info.endpoint or str(path)
        service = next((one for one in info.supported_versions if one in wire.PLUGIN_SERVICES), "")
        if not service or info.type != wire.PLUGIN_TYPE:
            raise RegistrationRefused(
                f"{info.type} {driver} at {path} has no service for a kubelet"
            )
        instances = self._instances.setdefault(driver, [])
        if endpoint in {one.endpoint for one in instances}:
            raise RegistrationRefused(
                f"plugin registration failed with err: endpoint {endpoint} already registered for "
                f"DRA driver plugin {driver}"
            )
        offered = [one for one in self._behavior.health if one in info.supported_versions]
        instance = DriverInstance(driver, endpoint, service, next(iter(offered), ""))
        instances.append(instance)
        following = [instance.follow(lambda: self._sync(driver))]
        if instance.health:
            following.append(instance.watch(self._on_health, self._timer))
        self._tasks[instance] = [asyncio.create_task(one) for one in following]
        self._sync(driver)
        return endpoint

    async def deregister(self, driver: str, endpoint: str) -> None:
        instances = self._instances.get(driver, [])
        for instance in [one for one in instances if one.endpoint == endpoint]:
            instances.remove(instance)
            self._sync(driver)
            await _cancel(self._tasks.pop(instance))
            await instance.close()

    def get(self, driver: str) -> DriverInstance:
        """Return the instance to call; raises ClaimRefused."""
        instances = self._instances.get(driver)
        if not instances:
            raise ClaimRefused(f"DRA driver {driver} is not registered")
        connected = [one for one in instances if one.connected.is_set() and one.answers]
        return (connected or instances)[-1]

    async def connected(self, driver: str) -> None:
        """Wait until an instance is connected."""
        while not self._is_connected(driver):
            await self._changed.wait()

    def _is_connected(self, driver: str) -> bool:
        return any(one.connected.is_set() for one in self._instances.get(driver, ()))

    def _sync(self, driver: str) -> None:
        """Start or cancel the deletion of slices, after every change of an instance."""
        before, self._changed = self._changed, asyncio.Event()
        before.set()
        if self._is_connected(driver):
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


class PluginWatcher:
    """Watches `directory`, which it makes; its end is `stop`."""

    def __init__(self, directory: Path, drivers: DriverRegistry, timer: Timer) -> None:
        self._directory = directory
        self._drivers = drivers
        self._timer = timer
        self._sockets: dict[Path, tuple[Identity, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._inotify: Inotify | None = None
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._inotify = Inotify()
        self._inotify.watch(self._directory)
        asyncio.get_running_loop().add_reader(self._inotify.descriptor, self._read)
        self._changed.set()
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._inotify is not None and self._watching is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.descriptor)
            self._inotify.close()
            self._inotify = None
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for path in tuple(self._sockets):
            await self._end(path)

    def _read(self) -> None:
        if self._inotify is not None:
            self._inotify.drain()
            self._changed.set()

    async def _watch(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            there = {}
            for path in sorted(self._directory.iterdir()):
                one = identity(path)
                if one is not None and not path.name.startswith("."):
                    with contextlib.suppress(OSError):
                        if stat.S_ISSOCK(path.lstat().st_mode):
                            there[path] = one
            for path, (known, _) in tuple(self._sockets.items()):
                if there.get(path) != known:
                    await self._end(path)
            for path, found in there.items():
                if path not in self._sockets:
                    task = asyncio.create_task(self._keep_registered(path))
                    self._sockets[path] = (found, task)

    async def _end(self, path: Path) -> None:
        """End the task, which deregisters what it has registered."""
        _, task = self._sockets.pop(path)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _keep_registered(self, path: Path) -> None:
        """Run until cancelled, which is when its socket ends."""
        back_off = FIRST_BACK_OFF
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError, RegistrationRefused):
                name, endpoint = await self._register(path)
                try:
                    await asyncio.Event().wait()
                finally:
                    await self._drivers.deregister(name, endpoint)
            await self._timer.sleep_until(self._timer.now() + round(back_off * NS))
            back_off = min(back_off * 2, LONGEST_BACK_OFF)

    async def _register(self, path: Path) -> tuple[str, str]:
        """Return name and endpoint; raises AioRpcError, TimeoutError, RegistrationRefused."""
        async with wire.dial(path) as channel:
            async with asyncio.timeout(DIAL_SECONDS):
                await channel.channel_ready()
            client = wire.RegistrationClient(channel)
            info = await client.get_info(INFO_SECONDS)
            try:
                endpoint = self._drivers.register(info, path)
            except RegistrationRefused as refused:
                error = f"RegisterPlugin error -- {refused}"
                told = registration_pb.RegistrationStatus(plugin_registered=False, error=error)
                await client.notify(told, NOTIFY_SECONDS)
                raise
            try:
                await client.notify(
                    registration_pb.RegistrationStatus(plugin_registered=True), NOTIFY_SECONDS
                )
            except BaseException:
                await self._drivers.deregister(info.name, endpoint)
                raise
        return info.name, endpoint


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


async def _cancel(tasks: Iterable["asyncio.Task[None]"]) -> None:
    tasks = tuple(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
