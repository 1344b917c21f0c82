"""Agents in processes of their own that die at a given step of what they do for the kubelet.

The program reads lines `BASE ENDPOINT STEP`, begins such an agent for each and prints its PID: the
agents are forked, so that the modules are loaded once. A step is what one does for the kubelet
between two waits: STEP counts them over all calls, and at that one the process kills itself; -1:
never.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Collection, Coroutine, Generator
from pathlib import Path
from typing import Any

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.deviceplugin.server import ResourceServer
from gpumanager.grants.refusals import Refused
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.kubelet.pods import KubeletPods
from tests.deviceplugin.admission.admission_node import gpus
from tests.deviceplugin.agent_on_kubelet import BLOCKS, BOUND, granted_node, surroundings


class Fate:
    """Counts steps. at: the one to die at."""

    def __init__(self, at: int) -> None:
        self._left = at

    def step(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class Steps:
    """Work that is watched by fate: before each of its steps and after the last."""

    def __init__(self, work: Coroutine[Any, Any, Any], fate: Fate) -> None:
        self._work = work
        self._fate = fate

    def __await__(self) -> Generator[Any, Any, Any]:
        proceed: Any = self._work.send
        value: Any = None
        while True:
            self._fate.step()
            try:
                waited = proceed(value)
            except StopIteration as done:
                self._fate.step()
                return done.value
            try:
                proceed, value = self._work.send, (yield waited)
            except BaseException as error:  # noqa: BLE001  # it is the work's to handle
                proceed, value = self._work.throw, error


class MortalAllocator(Allocator):
    fate: Fate

    async def preferred(
        self,
        resource: str,
        available: Collection[str],
        must_include: Collection[str],
        size: int,
    ) -> tuple[str, ...]:
        work = super().preferred(resource, available, must_include, size)
        ids: tuple[str, ...] = await Steps(work, self.fate)
        return ids

    async def allocate(self, resource: str, ids: Collection[str]) -> ContainerEdits | Refused:
        answer: ContainerEdits | Refused = await Steps(super().allocate(resource, ids), self.fate)
        return answer

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        await Steps(super().pre_start(resource, ids), self.fate)

    async def kubelet_started(self) -> None:
        await Steps(super().kubelet_started(), self.fate)


def watch_servers(fate: Fate) -> None:
    """Also the answers of the plugin itself are steps: its options, and each list of devices."""
    options, listed = ResourceServer.options, ResourceServer.list_and_watch

    async def mortal_options(
        self: ResourceServer, request: pb.Empty, context: wire.Context
    ) -> pb.DevicePluginOptions:
        answer: pb.DevicePluginOptions = await Steps(options(self, request, context), fate)
        return answer

    async def mortal_list(
        self: ResourceServer, request: pb.Empty, context: wire.Context
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        fate.step()
        async for response in listed(self, request, context):
            yield response
            fate.step()

    ResourceServer.options = mortal_options  # type: ignore[method-assign, assignment]
    ResourceServer.list_and_watch = mortal_list  # type: ignore[method-assign, assignment]


async def serve(base: Path, endpoint: str, fate: Fate) -> None:
    deps = surroundings(base, KubeletPods(endpoint, token=base / "token", deadline=BOUND))
    allocator = MortalAllocator(granted_node(base, deps, gpus(1, BLOCKS)), deps)
    allocator.fate = fate
    watch_servers(fate)
    await allocator.take_up()
    await DevicePlugin(allocator, base / "kubelet").start()
    await allocator.serve_again()
    await asyncio.Event().wait()


def fork(base: str, endpoint: str, step: str) -> int:
    if pid := os.fork():
        return pid
    try:
        asyncio.run(serve(Path(base), endpoint, Fate(int(step))))
    finally:
        os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody collects them
    for line in sys.stdin:
        print(fork(*line.split()), flush=True)  # noqa: T201
