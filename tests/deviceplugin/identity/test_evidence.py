"""A running container proves only what its own pod was promised."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.deviceplugin.identity.evidence import (
    Evidence,
    PodLister,
    allocation_of,
    is_tenant,
    lived_on,
)
from gpumanager.ids import AllocationID, ContainerID, PodUID
from gpumanager.kube.pod import PodView
from gpumanager.names import CONTAINER_VCUDA
from gpumanager.runtime.status import Bind, Container, LiveContainer
from gpumanager.sim.in_memory import SimulatedPods
from tests.deviceplugin.admission.admission_node import Node, container, gpus, pod


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, gpus(4))


def plain(uid: str, name: str = "main", **claims: str) -> LiveContainer:
    """A container without GPUs; claims: its environment."""
    who = Container(ContainerID(f"id-{uid}"), PodUID(uid), "default", uid, name)
    return LiveContainer(who, envs=claims)


def mounting(live: LiveContainer, host: str) -> LiveContainer:
    return replace(live, mounts=(Bind(host, str(CONTAINER_VCUDA)),))


async def running(node: Node, one: PodView) -> tuple[LiveContainer, AllocationID]:
    await node.run(one)
    held = next(a for a in node.allocator.node.journal.live() if a.owner == one.uid)
    return node.live_container(one), held.id


async def test_a_container_without_gpus_proves_nothing(node: Node) -> None:
    live, name = await running(node, pod("a", container(30, 4)))
    by_environment = plain("uid-thief", VCUDA_ALLOCATION=name)
    by_mount = mounting(plain("uid-thief"), f"/anywhere/alloc/{name}")

    promised = node.allocator.node.journal.live()

    assert allocation_of(by_environment) is None
    assert allocation_of(by_mount) is None
    assert lived_on((by_environment, by_mount), promised) == frozenset()
    assert lived_on((live,), promised) == {name}


async def test_a_container_with_gpus_proves_nothing_for_another_pod(node: Node) -> None:
    honest, named = await running(node, pod("honest", container(100, 0)))
    liar, own = await running(node, pod("liar", container(100, 0)))
    claims = replace(liar, envs={**liar.envs, "VCUDA_ALLOCATION": named})
    mounts = mounting(liar, f"/anywhere/alloc/{named}")

    promised = node.allocator.node.journal.live()

    assert lived_on((claims,), promised) == {own}
    assert lived_on((mounts,), promised) == {own}
    assert lived_on((honest, claims), promised) == {named, own}


async def test_a_container_that_denies_its_allocation_has_it_all_the_same(node: Node) -> None:
    live, name = await running(node, pod("a", container(100, 0)))

    silent = replace(live, envs={})

    assert lived_on((silent,), node.allocator.node.journal.live()) == {name}


async def test_a_share_is_named_by_the_mount_of_its_container_whatever_that_says(
    node: Node,
) -> None:
    live, name = await running(node, pod("a", container(30, 4)))

    assert allocation_of(replace(live, envs={})) == name
    assert allocation_of(replace(live, envs={"VCUDA_ALLOCATION": "other"})) == name


async def test_a_pod_without_gpus_is_not_held_for_what_its_environment_says(node: Node) -> None:
    """The whole node could be taken so, after the journal was lost or at any reconciliation."""
    claims = {
        "VCUDA_ALLOCATION": "mine",
        "VCUDA_GPUS": ",".join(g.uuid for g in node.topology.gpus),
    }
    thief = pod("thief", container(0, 0))
    node.listing.listed[thief.uid] = thief
    node.runtime.containers.append(plain(thief.uid, **claims))

    await node.restart_agent()
    for _ in range(3):
        node.clock.now += 60
        await node.allocator.reconcile()

    assert node.allocator.node.journal.live() == ()
    assert node.allocator.disagreements == ()


async def test_a_container_is_held_with_the_gpus_that_the_kubelet_annotated(node: Node) -> None:
    """Journal and checkpoint are lost; its environment names all GPUs of the node."""
    live, _ = await running(node, pod("a", container(100, 0)))
    every = ",".join(gpu.uuid for gpu in node.topology.gpus)
    node.runtime.containers.append(replace(live, envs={**live.envs, "VCUDA_GPUS": every}))
    before = node.allocator.node.journal.live()[0].gpus
    (node.directory / "allocations.json").unlink()
    (node.directory / "kubelet_internal_checkpoint").unlink()

    await node.restart_agent()

    (held,) = node.allocator.node.journal.live()
    assert held.gpus == before


async def test_two_pods_that_name_one_allocation_are_both_held(node: Node) -> None:
    honest, named = await running(node, pod("honest", container(100, 0)))
    liar, _ = await running(node, pod("liar", container(100, 0)))
    claims = replace(liar, envs={**liar.envs, "VCUDA_ALLOCATION": named})
    node.runtime.containers += [honest, claims]
    (node.directory / "allocations.json").unlink()
    (node.directory / "kubelet_internal_checkpoint").unlink()

    await node.restart_agent()

    held = node.allocator.node.journal.live()
    assert {a.owner for a in held} == {"uid-honest", "uid-liar"}
    assert len({gpu for a in held for gpu in a.gpus}) == 2


def test_a_pod_that_neither_shows_is_gone_only_where_both_could_tell() -> None:
    told = {
        (checkpoint is None, live is None): Evidence(checkpoint, live=live).complete
        for checkpoint in (None, ())
        for live in (None, ())
    }

    assert told == {one: one == (False, False) for one in told}


@pytest.mark.parametrize("tenant", ["a-b", "a_b"])
@pytest.mark.parametrize("pod", ["a-b", "a_b"])
def test_a_pod_computes_under_its_uid_or_the_name_of_its_slice(pod: str, tenant: str) -> None:
    assert is_tenant(PodUID(pod), (PodUID(tenant),))
    assert not is_tenant(PodUID(pod), (PodUID("c"),))


async def test_that_pods_cannot_be_listed_is_a_warning_once_in_each_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kubelet, levels = SimulatedPods(), []
    lister = PodLister(kubelet)
    for answers in (False, False, True, False):
        kubelet.readable = answers
        with caplog.at_level(logging.DEBUG):
            assert await lister.list() == (() if answers else None)
        levels.append("".join(one.levelname[0] for one in caplog.records))
        caplog.clear()

    assert levels == ["W", "D", "", "W"]
