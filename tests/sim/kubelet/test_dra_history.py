"""Whatever happens to pods, driver and kubelet: what was prepared is unprepared, and not before."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from gpumanager.sim.kubelet.versions import KUBELET_1_37
from tests.contracts.dra.claims_stage import SYNC_SECONDS, ClaimsStage, pod
from tests.contracts.dra.simulated_claims import SimulatedClaims

STEPS = 60
CLAIMS = 4


class History:
    """Random steps; the model knows which pods should have which claims."""

    def __init__(self, kubelet: SimulatedClaims, random: Random) -> None:
        self.kubelet = kubelet
        self.random = random
        self.stage = ClaimsStage(kubelet)
        self.driver = self.stage.driver
        self.driver.during_unprepare = self.check_nobody_runs
        self.pods: dict[str, tuple[str, ...]] = {}
        """By UID, the claims of pods that are not to end."""
        self.made = 0
        self.wrong: list[str] = []

    async def check_nobody_runs(self) -> None:
        claims = set(self.driver.calls[-1].claims)
        for uid, held in self.pods.items():
            if claims & set(held) and await self.kubelet.starts(uid, "main"):
                self.wrong.append(f"{uid} runs with {held}, of which {claims} were unprepared")

    async def step(self) -> None:
        steps = (
            *(self.start_pod, self.start_pod, self.start_pod, self.end_pod, self.end_pod),
            *(self.refuse, self.relent, self.restart_driver, self.restart_kubelet, self.go_on),
        )
        await self.random.choice(steps)()

    async def start_pod(self) -> None:
        names = [f"claim-{n}" for n in range(CLAIMS)]
        claims = tuple(self.random.sample(names, self.random.randint(1, 2)))
        self.made += 1
        uid = await self.stage.start(pod(f"pod-{self.made}", *claims))
        self.pods[uid] = claims

    async def end_pod(self) -> None:
        if self.pods:
            uid = self.random.choice(sorted(self.pods))
            del self.pods[uid]
            await self.stage.delete(uid, force=self.random.random() < 0.3)

    async def refuse(self) -> None:
        self.driver.refuse[f"claim-{self.random.randrange(CLAIMS)}"] = "as told"

    async def relent(self) -> None:
        self.driver.refuse.clear()

    async def restart_driver(self) -> None:
        await self.driver.stop()
        if self.random.random() < 0.5:
            await self.go_on()
        await self.driver.start()

    async def restart_kubelet(self) -> None:
        await self.kubelet.restart()

    async def go_on(self) -> None:
        await self.kubelet.wait(self.random.choice((0.0, 1.0, 20.0, SYNC_SECONDS)))

    async def everybody_runs(self) -> None:
        for uid in self.pods:
            await self.stage.soon(lambda u=uid: self.kubelet.starts(u, "main"), SYNC_SECONDS)  # type: ignore[misc]

    async def everybody_ends(self) -> None:
        for uid in tuple(self.pods):
            del self.pods[uid]
            await self.stage.delete(uid)
        for uid in self.stage.pods:
            await self.stage.soon(lambda u=uid: self.kubelet.gone(u), SYNC_SECONDS)  # type: ignore[misc]


@pytest.fixture(params=range(4))
async def history(request: pytest.FixtureRequest) -> AsyncIterator[History]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    kubelet = SimulatedClaims(base, KUBELET_1_37)
    await kubelet.node.start()
    history = History(kubelet, Random(request.param))
    yield history
    await kubelet.stop()
    await history.driver.stop()
    await asyncio.to_thread(shutil.rmtree, base)


async def test_what_was_prepared_is_unprepared_with_the_last_pod_and_not_before(
    history: History,
) -> None:
    await history.driver.start()
    for n in range(CLAIMS):
        await history.stage.claim(f"claim-{n}")

    for _ in range(STEPS):
        await history.step()
    history.driver.refuse.clear()
    await history.everybody_runs()
    await history.everybody_ends()

    last = {name: call.name for call in history.driver.calls for name in call.claims}
    assert last == dict.fromkeys(last, "unprepare")
    assert history.stage.checkpoint() == {}
    assert history.wrong == []
    assert history.made > 10
