"""The sockets in `plugins_registry`: each is asked who it is, and told whether it is taken.

Follows pkg/kubelet/pluginmanager. The end of a socket is the end of its plugin, whoever still
listens; a socket that was made anew is a new plugin. One that does not answer, or is refused, is
asked again and again, half a second later and then twice as long each time.
"""

import asyncio
import contextlib
import stat
from pathlib import Path
from typing import Final

import grpc.aio

from gpumanager.deviceplugin.changes import Inotify
from gpumanager.deviceplugin.registration import Identity, identity
from gpumanager.dra import wire
from gpumanager.dra.api import pluginregistration_v1_pb2 as pb
from gpumanager.sim.clock import NS, Timer
from gpumanager.sim.kubelet.dra.drivers import DriverRegistry, RegistrationRefused

DIAL_SECONDS: Final = 10.0
INFO_SECONDS: Final = 1.0
NOTIFY_SECONDS: Final = 5.0
FIRST_BACK_OFF: Final = 0.5
LONGEST_BACK_OFF: Final = 122.0
FAILED: Final = "RegisterPlugin error --"


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
            endpoint = info.endpoint or str(path)
            versions, error = tuple(info.supported_versions), ""
            if info.type != wire.PLUGIN_TYPE:
                error = f"no handler registered for plugin type: {info.type} at socket {path}"
            else:
                step = "validation"
                try:
                    self._drivers.validate(info.name, endpoint, versions)
                    step = "registration"
                    self._drivers.register(info.name, endpoint, versions)
                except RegistrationRefused as refused:
                    error = f"plugin {step} failed with err: {refused}"
            if error:
                told = pb.RegistrationStatus(plugin_registered=False, error=f"{FAILED} {error}")
                await client.notify(told, NOTIFY_SECONDS)
                raise RegistrationRefused(error)
            try:
                await client.notify(pb.RegistrationStatus(plugin_registered=True), NOTIFY_SECONDS)
            except BaseException:
                await self._drivers.deregister(info.name, endpoint)
                raise
        return info.name, endpoint
