"""The real agent on a simulated node, without its journal: what the kubelet kept brings it back."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpumanager.grants.grant import Grant
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.kube.pod import ContainerKind
from gpumanager.legacy.checkpoint import FILE_NAME as ORIGINAL
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.devices import Holding
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from gpumanager.units import MEMORY_BLOCK


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    async with SimulatedNode(load_machine("single")) as running:
        yield running


def pod(name: str, cores: int, blocks: int) -> Pod:
    asks = {VCORE: cores, VMEMORY: blocks}
    return Pod(
        "default", name, (ContainerManifest("main", ContainerKind.APP, ("true",), asks=asks),)
    )


def lose(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    path.write_bytes(b"?" + path.read_bytes()[1:])


def essence(allocation: Grant) -> object:
    pod = allocation.pod
    return (
        *(allocation.id, set(allocation.ids.core_ids), set(allocation.ids.memory_ids)),
        *(allocation.gpus, pod and (pod.uid, pod.name, pod.container)),
    )


@pytest.mark.parametrize("harm", [lose, damage])
async def test_an_agent_that_lost_its_journal_has_every_grant_again(
    node: SimulatedNode, harm: Callable[[Path], None]
) -> None:
    path = node.disk.checkpoint / FILE_NAME
    started, waiting = pod("started", 30, 4), pod("waiting", 20, 2)
    for one in (started, waiting):
        assert await node.admit(one) is None
        await node.kubelet.prepare(one, one.containers[0])
    before = JournalFile(path).load()

    await node.kill_agent()
    harm(path)
    await node.start_agent()

    after = JournalFile(path).load()
    assert list(map(essence, after.live())) == list(map(essence, before.live()))
    assert await node.admit(pod("too large", 60, 4)) is not None
    await node.kubelet.prepare(started, started.containers[0])
    assert await node.admit(pod("fits", 50, 4)) is None


async def test_a_node_is_taken_over_from_the_original_without_being_drained(
    node: SimulatedNode,
) -> None:
    """Its checkpoint names a minor; the kubelet has its IDs, which stay healthy till the end."""
    kubelet, legacy = node.kubelet, pod("legacy", 30, 4)
    await node.kill_agent()
    (node.disk.checkpoint / FILE_NAME).unlink(missing_ok=True)
    kubelet.pods = kubelet.pods.add(legacy)
    kubelet.running(legacy.uid)
    ids = {
        VCORE: frozenset(f"{VCORE}-{n}" for n in range(30)),
        VMEMORY: frozenset(f"{VMEMORY}-{MEMORY_BLOCK}-{n}" for n in range(4)),
    }
    for resource, held in ids.items():
        kubelet.books = kubelet.books.hold(Holding(legacy.uid, "main", resource, held))
    kubelet._write_checkpoint()
    promised = {"Devices": ["/dev/nvidia0"], "Cores": 30, "Memory": 4 * MEMORY_BLOCK}
    text = json.dumps({"PodGPUMapping": {legacy.uid: {"main": promised}}})
    (node.disk.checkpoint / ORIGINAL).write_text(text)

    await node.start_agent()

    for resource, held in ids.items():
        assert held <= kubelet.books.healthy[resource]
    assert kubelet.books.capacity(VCORE) == 100
    assert await node.admit(pod("too large", 71, 4)) is not None
    assert await node.admit(pod("fits", 70, 4)) is None
    await kubelet.prepare(legacy, legacy.containers[0])
    (inherited,) = (a for a in journal(node) if a.legacy)
    assert (inherited.owner, inherited.ids.core_ids) == (legacy.uid, tuple(sorted(ids[VCORE])))


def journal(node: SimulatedNode) -> tuple[Grant, ...]:
    return JournalFile(node.disk.checkpoint / FILE_NAME).load().live()
