"""The simulated kubelet for the contract, with the API server and the runtime that it needs."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from gpumanager.kube.errors import ApiRefused, Object
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.cdi import CdiUnresolved
from gpumanager.sim.clock import NS
from gpumanager.sim.container.values import ContainerSpec
from gpumanager.sim.container_runtime import SimulatedRuntime
from gpumanager.sim.in_memory import ManualTimer
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.kubelet.kubelet import SimulatedKubelet
from gpumanager.sim.kubelet.versions import KubeletVersion
from gpumanager.sim.manifest.pods import ContainerClaim, ContainerManifest, Pod, PodClaim
from gpumanager.sim.runner import container_spec
from tests.contracts.dra.claims_kubelet import DRIVER, AllocatedClaim, ClaimingPod


def allocated(
    name: str,
    uid: str,
    *,
    requests: Sequence[str] = ("one",),
    driver: str = DRIVER,
    reserved_for: Sequence[str] = (),
) -> dict[str, Any]:
    """A ResourceClaim, with a device for each request. reserved_for: UIDs of pods."""
    results = [
        {"request": request, "driver": driver, "pool": "pool", "device": f"thing-{n}"}
        for n, request in enumerate(requests)
    ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "uid": pod} for pod in reserved_for],
        },
    }


class MemoryApi(NodeApi):
    """Without an API server."""

    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.slices: dict[str, str] = {}
        self.events: list[tuple[str, str, str]] = []
        self.health: dict[tuple[str, str], Sequence[Object]] = {}

    async def claim(self, namespace: str, name: str) -> Object:
        if name not in self.claims:
            what = f'resourceclaims.resource.k8s.io "{name}" not found'
            raise ApiRefused("GET", 404, "NotFound", what)
        return self.claims[name]

    async def delete_slices(self, driver: str) -> None:
        kept = {name: row for name, row in self.slices.items() if driver not in {"", row}}
        self.slices = kept

    async def event(self, pod: Pod, reason: str, message: str) -> None:
        self.events.append((pod.uid, reason, message))

    async def report_health(self, pod: Pod, rows: Mapping[str, Sequence[Object]]) -> None:
        for container, found in rows.items():
            self.health[pod.uid, container] = found


class SimulatedClaims:
    """Runs pods as a node does, without any process in their containers."""

    seconds = 60.0

    def __init__(self, base: Path, version: KubeletVersion) -> None:
        self.version = version
        self.root = base
        self.cdi = base / "cdi"
        self.api = MemoryApi()
        self.timer = ManualTimer()
        self.runtime = SimulatedRuntime(base / "cri.sock", cdi=[self.cdi])
        self.node = SimulatedKubelet(
            base / "device-plugins",
            Random(5),
            base / "pod-resources.sock",
            version,
            api=self.api,
            timer=self.timer,
        )
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Event] = {}
        self._started: dict[tuple[str, str], list[ContainerSpec]] = {}

    async def stop(self) -> None:
        for life in self._lives.values():
            life.cancel()
        await asyncio.gather(*self._lives.values(), return_exceptions=True)
        await self.node.stop()

    def now(self) -> float:
        return self.timer.now() / NS

    async def wait(self, seconds: float) -> None:
        await self.hurry(seconds)
        await asyncio.sleep(0.05)  # who wakes, and has something to do, does it

    async def hurry(self, seconds: float) -> None:
        self.timer.advance(seconds)

    async def allocate(self, claim: AllocatedClaim) -> str:
        uid = str(uuid.uuid4())
        self.api.claims[claim.name] = allocated(
            claim.name, uid, requests=claim.requests, driver=claim.driver
        )
        return uid

    async def free(self, name: str) -> None:
        self.api.claims.pop(name, None)

    async def start(self, pod: ClaimingPod) -> str:
        made = Pod(
            "default",
            pod.name,
            tuple(
                ContainerManifest(
                    one.name,
                    ContainerKind.APP,
                    ("x",),
                    tuple(one.env.items()),
                    claims=tuple(ContainerClaim(row, request or "") for row, request in one.uses),
                )
                for one in pod.containers
            ),
            claims=tuple(PodClaim(row, claim) for row, claim in pod.claims.items()),
        )
        reserved = pod.claims.values() if pod.reserved is None else pod.reserved
        for claim in reserved:
            row = {"resource": "pods", "name": pod.name, "uid": made.uid}
            self.api.claims[claim]["status"]["reservedFor"].append(row)
        assert await self.node.admit(made) is None
        self._ending[made.uid] = asyncio.Event()
        starts = {one.name: one.starts for one in pod.containers}
        self._lives[made.uid] = asyncio.create_task(self._live(made, starts))
        return made.uid

    async def _live(self, pod: Pod, starts: Mapping[str, int]) -> None:
        if await self.node.prepare_claims(pod):
            self.node.running(pod.uid)
            for container in pod.containers:
                for _ in range(starts[container.name]):
                    await self._create(pod, container)
            await self._ending[pod.uid].wait()
        await self.node.unprepare_claims(pod)
        self.node.delete(pod.uid)

    async def _create(self, pod: Pod, container: ContainerManifest) -> None:
        options = await self.node.prepare(pod, container)
        spec = container_spec(pod, container, options)
        try:
            made = self.runtime.create(spec, options.cdi_devices)
        except CdiUnresolved as error:
            await self.api.event(pod, "Failed", f"Error: {error}")
            return
        self._started.setdefault((pod.uid, container.name), []).append(made)

    async def starts(self, uid: str, container: str) -> int:
        return len(self._started.get((uid, container), ()))

    async def environment(self, uid: str, container: str) -> Mapping[str, str]:
        return self._started[uid, container][-1].environment

    async def delete(self, uid: str, *, force: bool = False) -> None:
        """A pod that waits is gone at once: it has nothing to be stopped."""
        self._ending[uid].set()
        waits = not any(owner == uid for owner, _ in self._started)
        if force or waits:
            self.node.delete(uid)

    async def gone(self, uid: str) -> bool:
        if not self._lives[uid].done():
            return False
        self._lives[uid].result()
        return uid not in self.node.pods.statuses

    async def warnings(self, uid: str) -> Sequence[tuple[str, str]]:
        return [(reason, message) for one, reason, message in self.api.events if one == uid]

    async def health(self, uid: str, container: str) -> Sequence[Mapping[str, Any]]:
        return self.api.health.get((uid, container), ())

    async def publish(self, name: str, driver: str = DRIVER) -> None:
        self.api.slices[name] = driver

    async def slices(self) -> set[str]:
        return set(self.api.slices)

    async def restart(self) -> None:
        await self.node.restart()
