"""A kubelet, drivers and pods, as the cases of the contract meet them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.contracts.dra.claims_kubelet import (
    DRIVER,
    ROW,
    AllocatedClaim,
    ClaimingContainer,
    ClaimingPod,
    KubeletWithClaims,
)
from tests.contracts.dra.stub_driver import StubDriver

SYNC_SECONDS = 90.0
"""After which a kubelet has tried again what it waits with."""


class ClaimsStage:
    """The kubelet, a driver that has registered, and whatever the test makes."""

    def __init__(self, kubelet: KubeletWithClaims) -> None:
        self.kubelet = kubelet
        self.driver = StubDriver(kubelet.root, kubelet.cdi, DRIVER)
        self.drivers = [self.driver]
        self.pods: list[str] = []
        self.claims: list[str] = []

    def instance(self, instance: str, name: str = DRIVER) -> StubDriver:
        """Another one, not started yet."""
        driver = StubDriver(self.kubelet.root, self.kubelet.cdi, name, instance)
        self.drivers.append(driver)
        return driver

    async def registered(self, driver: StubDriver) -> None:
        """Until the kubelet has taken it and is connected to it."""
        await self.soon(lambda: driver.told[-1:] == [(True, "")] and len(driver.watchers) == 1)

    async def claim(self, name: str, *requests: str, driver: str = DRIVER) -> str:
        """An allocated claim; by default its request is `one`, and the driver has a device."""
        uid = await self.kubelet.allocate(AllocatedClaim(name, requests or ("one",), driver))
        self.claims.append(name)
        for one in (row for row in self.drivers if row.name == driver):
            one.devices.setdefault(
                name,
                [one.device("thing-0", request, cdi=name) for request in requests or ("one",)],
            )
        return uid

    async def start(self, pod: ClaimingPod) -> str:
        uid = await self.kubelet.start(pod)
        self.pods.append(uid)
        return uid

    async def run(self, pod: ClaimingPod) -> str:
        """Until all its containers were started."""
        uid = await self.start(pod)
        await self.runs(uid, pod)
        return uid

    async def runs(self, uid: str, pod: ClaimingPod) -> None:
        for one in pod.containers:
            await self.soon(lambda c=one: self._has_started(uid, c))  # type: ignore[misc]

    async def _has_started(self, uid: str, container: ClaimingContainer) -> bool:
        return await self.kubelet.starts(uid, container.name) >= container.starts

    async def not_started(self, uid: str, reason: str, container: str = "main") -> str:
        """Until an event says why; its message."""
        found: list[str] = []

        async def said() -> bool:
            warnings = await self.kubelet.warnings(uid)
            found[:] = [message for why, message in warnings if why == reason]
            return bool(found)

        await self.soon(said)
        assert await self.kubelet.starts(uid, container) == 0
        return found[-1]

    async def delete(self, uid: str, *, force: bool = False) -> None:
        await self.kubelet.delete(uid, force=force)

    async def soon(self, holds: Callable[[], Any], step: float = 0.0) -> None:
        """Until it holds, in the time that the kubelet has for it.

        step: by how much its clock may be moved between two looks.
        """
        async with asyncio.timeout(self.kubelet.seconds):
            while not await _value(holds()):
                if step:
                    await self.kubelet.hurry(step)
                await asyncio.sleep(0.02)

    def checkpoint(self) -> dict[str, dict[str, Any]]:
        """Rows of `dra_manager_state` by claim name."""
        text = (self.kubelet.root / "dra_manager_state").read_text()
        rows = json.loads(json.loads(text)["Data"])["ClaimInfoStateList"] or []
        return {row["ClaimName"]: row for row in rows}


async def _value(found: Any) -> Any:
    return await found if asyncio.iscoroutine(found) else found


@pytest.fixture
async def stage(claims_kubelet: KubeletWithClaims) -> AsyncIterator[ClaimsStage]:
    """A driver has registered; what the test makes goes with it."""
    stage = ClaimsStage(claims_kubelet)
    async with AsyncExitStack() as last_first:
        last_first.push_async_callback(clean, stage)
        await stage.driver.start()
        await stage.registered(stage.driver)
        yield stage


async def clean(stage: ClaimsStage) -> None:
    """Pods end well, which needs a driver that is there and refuses nothing."""
    for driver in stage.drivers:
        driver.refuse.clear()
        driver.during_prepare = driver.during_unprepare = None
    if not stage.driver.watchers:
        await stage.driver.start()
    for uid in stage.pods:
        await stage.kubelet.delete(uid)
    for uid in stage.pods:
        await stage.soon(lambda u=uid: stage.kubelet.gone(u), SYNC_SECONDS)  # type: ignore[misc]
    for name in stage.claims:
        await stage.kubelet.free(name)
    for driver in stage.drivers:
        await driver.stop()


def pod(name: str, *claims: str, **fields: Any) -> ClaimingPod:
    """With its first claim as ROW, others by their names; each container uses all of them whole."""
    rows = {ROW if n == 0 else claim: claim for n, claim in enumerate(claims)}
    container = ClaimingContainer(uses=tuple((row, None) for row in rows))
    return ClaimingPod(name, rows, **{"containers": (container,), **fields})


def uses(name: str, *requests: str | None, **fields: Any) -> ClaimingContainer:
    """A container that names requests of ROW."""
    return ClaimingContainer(name, tuple((ROW, request) for request in requests), **fields)
