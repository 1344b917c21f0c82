"""A pod of one container that runs on a simulated node with a real agent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from tests.limits.container_process import SECONDS
from tests.limits.running_pod import Running

SLEEPER = ContainerManifest(
    "main", ContainerKind.APP, ("sleep", "60"), asks={VCORE: 30, VMEMORY: 4}
)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    if reason := namespaces_available():
        pytest.skip(reason)
    pod = Pod("default", "sleeper", (SLEEPER,))
    async with SimulatedNode(load_machine("t4x4")) as node:
        await node.admit(pod)
        run = asyncio.create_task(node.runner.run(pod))
        runtime = ContainerRuntime([node.disk.runtime])
        async with asyncio.timeout(SECONDS):
            while not (live := await runtime.list()):  # noqa: ASYNC110 - as an agent asks
                await asyncio.sleep(0.01)
        await runtime.close()
        files = Path(live[0].source("/etc/vcuda") or "")
        yield Running(pod.uid, live[0].container.container_id, files, node.disk.virtual)
        node.kill_containers()
        await asyncio.wait_for(run, SECONDS)
