"""A kubelet and two plugins, as the cases of the contract meet them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire
from gpumanager.kubelet.checkpoint import DeviceHolder, read_checkpoint
from gpumanager.sim.kubelet.versions import KubeletVersion
from tests.contracts.kubelet.fake_plugin import FakePlugin
from tests.contracts.kubelet.kubelet_under_test import (
    ALPHA,
    BETA,
    KubeletUnderTest,
    Outcome,
    Sketch,
    SketchedContainer,
)

IDS = {ALPHA: [f"a{n}" for n in range(10)], BETA: [f"b{n}" for n in range(6)]}
CHECKPOINT = "kubelet_internal_checkpoint"


class Stage:
    """A kubelet, and the plugins of both resources."""

    def __init__(self, kubelet: KubeletUnderTest) -> None:
        self.kubelet = kubelet
        self.alpha = FakePlugin(kubelet.directory, ALPHA, IDS[ALPHA])
        self.beta = FakePlugin(kubelet.directory, BETA, IDS[BETA])
        self.made: list[str] = []

    @property
    def version(self) -> KubeletVersion:
        return self.kubelet.version

    async def register(self, *plugins: FakePlugin) -> None:
        """Anew, once the node says that the kubelet has seen the end of whoever was there before.

        That end could take a new plugin with it, and what the node says be of the one before.
        """
        names = {one: one.resource.rpartition("-")[2] for one in plugins}
        for plugin in plugins:
            await plugin.stop()
        await self.offers(**dict.fromkeys(names.values(), 0))
        for plugin in plugins:
            await plugin.start()
            await plugin.register()
        await self.offers(**{name: len(one.ids) for one, name in names.items()})

    async def offers(self, **amounts: int) -> None:
        """Until the node says that so many can be had."""
        for name, amount in amounts.items():
            resource = {"alpha": ALPHA, "beta": BETA}[name]
            await self.soon(lambda r=resource, n=amount: self._allocates(r, n))  # type: ignore[misc]

    async def _allocates(self, resource: str, amount: int) -> bool:
        return (await self.kubelet.capacity(resource))[1] == amount

    async def soon(self, holds: Callable[[], Any]) -> None:
        """Until it holds, in the time that the kubelet has for it."""
        async with asyncio.timeout(self.kubelet.seconds):
            while not await holds():  # noqa: ASYNC110 - nobody could set an event
                await asyncio.sleep(0.02)

    async def run(self, *sketches: Sketch) -> tuple[Outcome, ...]:
        outcomes = await self.kubelet.run(*sketches)
        self.made += [one.uid for one in outcomes]
        return outcomes

    async def delete(self, *uids: str) -> None:
        await self.kubelet.delete(*uids)
        self.made = [uid for uid in self.made if uid not in uids]

    def checkpoint(self, uid: str) -> tuple[DeviceHolder, ...]:
        holders = read_checkpoint(self.kubelet.directory / CHECKPOINT)
        return tuple(one for one in holders if one.pod_uid == uid)

    def checkpoint_text(self) -> dict[str, Any]:
        text = (self.kubelet.directory / CHECKPOINT).read_text()
        found: dict[str, Any] = json.loads(text)["Data"]
        return found

    async def listed(self, service: str = wire.SERVICE) -> dict[str, Any]:
        """Containers of PodResources by pod, as one who keeps to the rate is told them."""
        async with wire.dial(self.kubelet.resources) as channel:
            answer = await wire.PodResourcesClient(channel, 60).list(service)
        return {pod.name: {one.name: one for one in pod.containers} for pod in answer.pod_resources}


@pytest.fixture
async def stage(kubelet: KubeletUnderTest) -> AsyncIterator[Stage]:
    """Both plugins have registered; what the test makes goes with it."""
    stage = Stage(kubelet)
    async with AsyncExitStack() as last_first:
        for plugin in (stage.alpha, stage.beta):
            last_first.push_async_callback(plugin.stop)
        await stage.register(stage.alpha, stage.beta)
        yield stage
        await kubelet.delete(*stage.made)


def one(name: str, alpha: int = 2, beta: int = 0, **fields: Any) -> Sketch:
    """A pod of one container."""
    return Sketch(name, [container("main", alpha, beta, **fields)])


def container(name: str, alpha: int = 0, beta: int = 0, **fields: Any) -> SketchedContainer:
    asks = {key: value for key, value in ((ALPHA, alpha), (BETA, beta)) if value}
    return SketchedContainer(name, asks=asks, **fields)


def init(name: str, alpha: int) -> SketchedContainer:
    return container(name, alpha, kind=ContainerKind.INIT, ends=True)


async def is_so(value: bool) -> bool:  # noqa: FBT001
    return value
