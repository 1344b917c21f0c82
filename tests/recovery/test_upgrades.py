"""A node whose agent is replaced by this one while containers run: nobody notices.

`upgrades/node.json` is what an agent with journal version 2 left; `upgrades/make.py` tells how.
"""

import base64
import json
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumanager.grants.grant import EvidenceSource, Grant, LegacySource, Share
from gpumanager.grants.journal_file import JournalFile
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.pod import ContainerKind, ContainerView, PodView
from gpumanager.limits.values import Limit
from gpumanager.names import VCORE, VMEMORY
from gpumanager.runtime.status import Bind, Container, LiveContainer
from gpumanager.units import Bytes
from tests.deviceplugin.admission.admission_node import (
    JOURNAL,
    AdmissionRefused,
    Node,
    container,
    gpus,
    pod,
)
from tests.limits.open_door import virtual_manager

LEFT = Path(__file__).parent / "upgrades" / "node.json"


@pytest.fixture
def base() -> Iterator[Path]:
    """Short: sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="up") as directory:
        yield Path(directory)


@pytest.fixture
def left(base: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(LEFT.read_text().replace("DIRECTORY", str(base)))
    return found


@pytest.fixture
async def node(base: Path, left: dict[str, Any]) -> AsyncIterator[Node]:
    """The files and the directories of then, and everybody but the agent still there."""
    (base / JOURNAL).write_text(left["journal"])
    (base / "kubelet_internal_checkpoint").write_text(left["kubelet"])
    for name, packed in left["configs"].items():
        directory = base / "vm" / "alloc" / name
        directory.mkdir(parents=True)
        (directory / "config").write_bytes(zlib.decompress(base64.b64decode(packed)))
    node = Node(base, gpus(6))
    sockets = virtual_manager(base / "vm")
    node.virtual = sockets  # type: ignore[assignment]
    node.listing.listed = {one.uid: one for one in map(_pod, left["pods"])}
    node.runtime.containers = [_container(one) for one in left["containers"]]
    node.held = {(uid, name, resource): {*ids} for uid, name, resource, ids in left["held"]}
    node.allocator = node.new_allocator()
    yield node
    await sockets.stop()


def _pod(said: dict[str, Any]) -> PodView:
    containers = tuple(
        ContainerView(one["name"], ContainerKind(one["kind"]), one["cores"], one["blocks"])
        for one in said["containers"]
    )
    return replace(pod(said["name"], *containers), annotations=said["annotations"], phase="Running")


def _container(said: dict[str, Any]) -> LiveContainer:
    binds = tuple(Bind(one["host"], one["container"]) for one in said["mounts"])
    who = Container(**said["container"])
    return LiveContainer(who, mounts=binds, envs=said["envs"], annotations=said["annotations"])


async def take_over(node: Node) -> None:
    await node.allocator.recover()
    await node.allocator.kubelet_started()
    for _ in range(3):
        node.clock.now += 60
        await node.allocator.reconcile()


def limits(left: dict[str, Any]) -> dict[AllocationID, tuple[Limit, ...]]:
    return {
        AllocationID(name): tuple(
            Limit(gpu, Bytes(memory), cores, ceiling)
            for gpu, memory, cores, ceiling, _burst in found
        )
        for name, found in left["limits"].items()
    }


def held(node: Node) -> dict[tuple[str, str], Grant]:
    """By pod and container, whoever was thought to be the owner."""
    claimants = ((one.pod or one.candidate, one) for one in node.allocator.node.journal.live())
    return {(who.name, who.container): one for who, one in claimants if who}


async def test_every_grant_of_before_is_held_as_it_was(node: Node) -> None:
    await take_over(node)

    found = {name: (one.gpus, one.shares[one.gpus[0]]) for name, one in held(node).items()}
    uuid = [gpu.uuid for gpu in node.topology.gpus]
    assert found == {
        ("legacy-share", "main"): ((uuid[0],), Share(30, 4)),
        ("legacy-whole", "main"): ((uuid[1],), Share(100, 2)),
        ("found", "main"): ((uuid[0],), Share(20, 3)),
        ("share", "main"): ((uuid[0],), Share(30, 4)),
        ("reuse", "init"): ((uuid[2],), Share(30, 4)),
        ("reuse", "main"): ((uuid[2],), Share(50, 6)),
        ("whole", "main"): ((uuid[4], uuid[5]), Share(100, 0)),
        ("waiting", "main"): ((uuid[0],), Share(10, 2)),
    }
    assert node.allocator.mismatches == 0


async def test_no_limit_changes_and_no_directory_is_made_anew(
    node: Node, left: dict[str, Any]
) -> None:
    directories = sorted((node.directory / "vm" / "alloc").iterdir())
    before = {path: (path.stat().st_ino, (path / "config").stat().st_ino) for path in directories}

    await take_over(node)

    assert sorted((node.directory / "vm" / "alloc").iterdir()) == directories
    after = {path: (path.stat().st_ino, (path / "config").stat().st_ino) for path in directories}
    assert after == before
    assert all((path / "vcuda.sock").is_socket() for path in directories)
    assert {name: node.virtual.limits(name) for name in limits(left)} == limits(left)


async def test_what_had_device_ids_keeps_them_and_what_had_made_up_ones_has_none(
    node: Node,
) -> None:
    await take_over(node)

    grants = held(node)
    for (uid, name, resource), ids in node.held.items():
        source = grants[uid.removeprefix("uid-"), name].ids
        if not isinstance(source, LegacySource):
            own = source.core_ids if resource == VCORE else source.memory_ids
            assert set(own) == ids
    assert isinstance(grants["found", "main"].source, EvidenceSource)
    assert isinstance(grants["legacy-share", "main"].source, LegacySource)
    for name in ("found", "legacy-share", "legacy-whole"):
        assert grants[name, "main"].ids.core_ids == ()


async def test_containers_start_again_and_new_pods_get_what_is_left(node: Node) -> None:
    await take_over(node)

    for uid in ("uid-share", "uid-reuse", "uid-whole", "uid-waiting"):
        one = node.listing.listed[PodUID(uid)]
        for part in one.containers:
            await node.start(one, part.name)
    await node.admit(pod("rest of GPU 2", container(50, 10)))
    await node.admit(pod("GPU 3", container(100, 0)))
    await node.admit(pod("rest of GPU 0", container(10, 3)))
    with pytest.raises(AdmissionRefused):
        await node.admit(pod("no more", container(1, 1)))


async def test_the_first_change_is_written_as_a_journal_of_this_version(node: Node) -> None:
    await take_over(node)

    head = (node.directory / JOURNAL).read_text().splitlines()[0]
    assert '"version": 3' in head
    assert JournalFile(node.directory / JOURNAL).load() == node.allocator.node.journal


async def test_a_damaged_line_of_before_costs_that_line_alone(
    node: Node, left: dict[str, Any]
) -> None:
    lines = left["journal"].splitlines()
    lines[1] = lines[1].replace("legacy", "lagecy")  # gpu-manager's, of which others know nothing
    (node.directory / JOURNAL).write_text("\n".join(lines) + "\n")

    await take_over(node)

    kept = {name for name, _ in held(node)}
    assert kept >= {"legacy-whole", "found", "share", "reuse", "whole", "waiting"}


@pytest.mark.parametrize("resource", [VCORE, VMEMORY])
async def test_ids_that_the_kubelet_may_give_name_only_what_is_free(
    node: Node, resource: str
) -> None:
    """Some for gpu-manager's share are left out, as before the upgrade."""
    await take_over(node)

    told = [one.device_id for one in node.allocator.devices(resource) if one.healthy]
    left_out = {VCORE: 130, VMEMORY: 6}[resource]
    assert len(told) == {VCORE: 600, VMEMORY: 96}[resource] - left_out
