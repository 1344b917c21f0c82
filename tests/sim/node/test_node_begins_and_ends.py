"""How a node in a box begins and ends: refusals at its start, and what is left behind."""

import asyncio
import fcntl
import os
import threading
from pathlib import Path

import pytest

from gpumanager.errors import GpuManagerError
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim import agent, node
from gpumanager.sim.agent import AgentDied
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.sim.host import NodeDisk, furnish, sweep
from gpumanager.sim.machine import Machine
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from tests.waiting import has_ended, until

pytestmark = pytest.mark.namespaces


async def test_nothing_is_left_behind_of_a_node() -> None:
    async with SimulatedNode(load_machine("single")) as node:
        base, agent = node.disk.base, node.agent.pid
        asks = {VCORE: 30, VMEMORY: 4}
        one = Pod(
            "default",
            "one",
            (ContainerManifest("main", ContainerKind.APP, ("sleep", "60"), asks=asks),),
        )
        await node.admit(one)
        running = asyncio.create_task(node.runner.run(one))
        await until(lambda: _processes_below(base) > 0)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)  # its node went away beneath it
    assert not base.exists()
    assert has_ended(agent)
    assert _processes_below(base) == 0


async def test_a_start_that_is_cancelled_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that writes the driver's files cannot be stopped, and goes on meanwhile."""
    begun, go_on, places = threading.Event(), threading.Event(), list[Path]()

    def slowly(disk: NodeDisk, machine: Machine) -> SimulatedGpus:
        places.append(disk.base)
        begun.set()
        go_on.wait(120)
        return furnish(disk, machine)

    monkeypatch.setattr(node, "furnish", slowly)
    starting = asyncio.create_task(SimulatedNode(load_machine("single")).__aenter__())
    await asyncio.to_thread(begun.wait, 120)

    starting.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert not places[0].exists()


async def test_an_agent_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "volume.conf").write_text("{")
    monkeypatch.setattr(agent, "VOLUME_CONFIG", tmp_path / "volume.conf")

    with pytest.raises(AgentDied, match=r"ended with status 2.*volume\.conf"):
        async with SimulatedNode(load_machine("single")):
            pass


async def test_a_kernel_without_namespaces_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node, "namespaces_available", lambda: "run as root, or …")

    with pytest.raises(GpuManagerError, match="run as root"):
        async with SimulatedNode(load_machine("single")):
            pass


def test_what_a_killed_simulation_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    running, killed, strange = (tmp_path / f"gm-{name}" for name in ("a", "b", "c"))
    for directory in (running, killed, strange):
        directory.mkdir()
    for directory in (running, killed):
        (directory / "node.lock").touch()
    with (running / "node.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        sweep(tmp_path)

    assert sorted(tmp_path.iterdir()) == [running, strange]


def _processes_below(base: Path) -> int:
    """Containers of a node have its files mounted."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                mounts = (entry / "mountinfo").read_text()
            except OSError:
                continue
            count += base.name in mounts
    return count
