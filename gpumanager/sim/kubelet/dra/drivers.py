"""Instances of DRA drivers: which one is called, and when a driver's ResourceSlices are deleted.

Follows pkg/kubelet/cm/dra/plugin. A driver may have several instances, as a rolling update has two:
the last one to register that is connected is called, or the last one if none is. While none is, and
for longer than 30 s, no pod should come for the driver, so its slices are deleted; they are so too
when the kubelet starts, for all drivers, since none has registered yet.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio

from gpumanager.dra import wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.sim.clock import NS, Timer
from gpumanager.sim.kubelet.dra.claims import ClaimRefused
from gpumanager.sim.kubelet.versions import DraBehavior

CALL_SECONDS: Final = 45.0
WIPE_SECONDS: Final = 30.0
"""A driver that comes back in this time keeps its slices."""
STREAM_SECONDS: Final = 5.0
"""Between the end of a stream of health and the next attempt."""
FIRST_BACK_OFF: Final = 1.0
LONGEST_BACK_OFF: Final = 300.0
"""Seconds between attempts to delete slices, doubled each time."""

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

    async def watch(self, on_health: OnHealth, timer: Timer, *, gives_up: bool) -> None:
        """Follow its reports. gives_up: where it has no such service; else asks for ever."""
        while True:
            await self.connected.wait()
            code: grpc.StatusCode | None = None
            try:
                async for report in self._client.watch():
                    on_health(self.driver, report.devices)
            except grpc.aio.AioRpcError as error:
                code = error.code()
            finally:
                on_health(self.driver, None)
            if gives_up and code is grpc.StatusCode.UNIMPLEMENTED:
                return
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

    def validate(self, driver: str, endpoint: str, versions: Sequence[str]) -> str:
        """Return the service to call: the first of the plugin's that is known here.

        Raises RegistrationRefused.
        """
        known = tuple(wire.PLUGIN_SERVICES)
        what = (
            f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}"
        )
        if not versions:
            raise RegistrationRefused(
                f"{what}: empty list of supported gRPC services (aka supported versions)"
            )
        for version in versions:
            if version in known:
                return version
        raise RegistrationRefused(
            f"{what}: none of services supported by the plugin ({_quoted(versions)}) "
            f"are supported by the kubelet ({_quoted(known)})"
        )

    def register(self, driver: str, endpoint: str, versions: Sequence[str]) -> None:
        """Register an instance; raises RegistrationRefused."""
        service = self.validate(driver, endpoint, versions)
        instances = self._instances.setdefault(driver, [])
        if endpoint in {one.endpoint for one in instances}:
            raise RegistrationRefused(
                f"endpoint {endpoint} already registered for DRA driver plugin {driver}"
            )
        offered = [one for one in self._behavior.health if one in versions]
        asked = self._behavior.health if self._behavior.asks_unadvertised else offered
        instance = DriverInstance(driver, endpoint, service, next(iter(asked), ""))
        instances.append(instance)
        following = [instance.follow(lambda: self._sync(driver))]
        if instance.health:
            gives_up = not self._behavior.asks_unadvertised
            following.append(instance.watch(self._on_health, self._timer, gives_up=gives_up))
        self._tasks[instance] = [asyncio.create_task(one) for one in following]
        self._sync(driver)

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
        back_off = FIRST_BACK_OFF
        await self._timer.sleep_until(self._timer.now() + round(seconds * NS))
        while True:
            with contextlib.suppress(ApiUnavailable, ApiRefused):
                await self._delete_slices(driver)
                return
            await self._timer.sleep_until(self._timer.now() + round(back_off * NS))
            back_off = min(back_off * 2, LONGEST_BACK_OFF)


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


def _quoted(words: Sequence[str]) -> str:
    """Print a list of strings as Go does."""
    return "[" + " ".join(f'"{word}"' for word in words) + "]"
