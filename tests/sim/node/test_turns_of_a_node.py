"""A node whose agent is restarted with `--gpu-time=turns` while a container runs."""

import asyncio

import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]


def busy(name: str, cores: int, seconds: int, given: str) -> Pod:
    line = f"{given} && cuda-play launch --kernel 2ms --seconds {seconds}"
    asks = {VCORE: cores, VMEMORY: 4}
    command = ("sh", "-c", line)
    return Pod("default", name, (ContainerManifest("main", ContainerKind.APP, command, asks=asks),))


async def test_a_running_container_keeps_its_share_and_a_new_one_takes_turns() -> None:
    old = busy("old", 30, 12, "! test -e /etc/vcuda/turns")
    new = busy("new", 60, 4, "test -p /etc/vcuda/turns/ring")
    async with SimulatedNode(load_machine("single")) as node:
        assert await node.admit(old) is None
        running = asyncio.Event()
        runs = asyncio.create_task(node.run_admitted(old, running=running))
        await running.wait()
        await node.restart_agent(**{"gpu-time": "turns"})
        results = *await node.run([new]), *await runs

    for one, share in zip(results, (60, 30), strict=True):
        assert one.exit_code == 0
        assert one.measured is not None
        assert one.measured.share is not None
        assert share / 2 < one.measured.share < share + 5
