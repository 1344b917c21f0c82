"""The simulated kubelets keep the contract that real ones are held to (`tests/e2e`)."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet.pods import KubeletPods
from gpumanager.sim.kubelet.kubelet import SimulatedKubelet
from gpumanager.sim.kubelet.versions import (
    KUBELET_1_20,
    KUBELET_1_36,
    KUBELET_1_37,
    KubeletVersion,
)
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from tests.contracts.kubelet.kubelet_cases import *  # noqa: F403 - the cases are the point
from tests.contracts.kubelet.kubelet_under_test import Outcome, Sketch


class Simulated:
    """A node with nothing but a kubelet."""

    seconds = 60.0

    def __init__(self, base: Path, version: KubeletVersion) -> None:
        self.version = version
        self.directory = base / "kubelet"
        self.resources = base / "pod-resources.sock"
        self.node = SimulatedKubelet(self.directory, Random(5), self.resources, version)
        self.pods_api = self.node.pods_api_socket

    async def start(self) -> None:
        await self.node.start()
        self.pods = KubeletPods(self.node.http.endpoint, deadline=self.seconds)

    async def run(self, *sketches: Sketch) -> tuple[Outcome, ...]:
        return tuple(await asyncio.gather(*map(self._run, sketches)))

    async def delete(self, *uids: str) -> None:
        for uid in uids:
            self.node.delete(uid)

    async def restart(self) -> None:
        await self.node.restart()

    async def capacity(self, resource: str) -> tuple[int, int]:
        known = self.node.books.registered.get(resource, frozenset())
        return len(known), self.node.books.capacity(resource)

    async def _run(self, sketch: Sketch) -> Outcome:
        containers = [
            ContainerManifest(row.name, row.kind, ("x",), asks=row.asks)
            for row in sketch.containers
        ]
        pod = Pod("default", sketch.name, tuple(containers))
        if rejection := await self.node.admit(pod):
            return Outcome(pod.uid, rejection.reason, rejection.message)
        self.node.running(pod.uid)
        for row, one in zip(sketch.containers, containers, strict=True):
            for _ in range(row.starts):
                await self.node.prepare(pod, one)
        if all(row.ends for row in sketch.containers if row.kind is ContainerKind.APP):
            self.node.ended(pod.uid, failed=False)
        return Outcome(pod.uid)


@pytest.fixture(
    params=[KUBELET_1_20, KUBELET_1_36, KUBELET_1_37], ids=lambda version: version.number
)
async def kubelet(request: pytest.FixtureRequest) -> AsyncIterator[Simulated]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    kubelet = Simulated(base, request.param)
    await kubelet.start()
    yield kubelet
    await kubelet.node.stop()
    shutil.rmtree(base)
