"""The reconciler: what disagrees is counted and reported, what is gone goes, nothing else does."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from gpumanager.deviceplugin import allocator
from gpumanager.deviceplugin.reconciler import KINDS, PASSES_PER_RUNTIME_LIST
from gpumanager.grants.journal_file import JournalFile
from gpumanager.ids import AllocationID, PodUID
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import (
    JOURNAL,
    AdmissionRefused,
    Node,
    container,
    pod,
)
from tests.waiting import until

SECONDS: Final = 60.0


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def kinds(node: Node) -> list[str]:
    found = [one.kind for one in node.allocator.disagreements]
    assert set(found) <= set(KINDS)
    return found


async def later(node: Node) -> None:
    node.clock.now += 60
    await node.allocator.reconcile()


async def test_books_that_agree_are_not_reported(node: Node) -> None:
    for name in ("a", "b"):
        one = pod(name, container(30, 4))
        await node.run(one)
        node.runtime.containers.append(node.live_container(one))

    await later(node)

    assert kinds(node) == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_a_pod_held_goes_with_it_though_the_node_s_clock_was_set_back(
    node: Node, restarts: object
) -> None:
    one = pod("a", container(60, 4))
    await node.run(one)
    node.set_by = -7200
    if restarts:
        await node.restart_agent()
    node.delete(one.uid)

    await later(node)
    await later(node)

    assert node.allocator.node.journal.live() == ()


async def test_what_a_pod_held_goes_with_it_after_an_hour_in_which_nothing_changed(
    node: Node,
) -> None:
    one = pod("a", container(60, 4))
    await node.run(one)
    node.runtime.containers.append(node.live_container(one))
    for _ in range(60):
        await later(node)
    node.runtime.containers.clear()
    node.delete(one.uid)

    await later(node)
    await later(node)

    assert node.allocator.node.journal.live() == ()


async def test_two_calls_far_apart_are_no_pair_whatever_the_node_s_clock_says(node: Node) -> None:
    node.listing.readable = False
    await node.allocator.allocate(VCORE, [f"00000000-c-{n}" for n in range(100)])
    node.clock.now += 60
    node.set_by = -60

    await node.allocator.allocate(VMEMORY, [f"00000001-m-{n}" for n in range(4)])

    assert len(node.allocator.node.journal.live()) == 2


async def test_a_container_that_outlives_its_pod_keeps_its_gpu_until_it_is_gone(
    node: Node,
) -> None:
    one = pod("a", container(60, 4))
    await node.run(one)
    node.runtime.containers.append(node.live_container(one))
    node.delete(one.uid)

    await later(node)
    await later(node)

    assert kinds(node) == ["lingering"]
    assert [a.owner for a in node.allocator.node.journal.live()] == [one.uid]
    node.held.clear()
    others = [pod(name, container(60, 4)) for name in ("b", "c")]
    await node.run(others[0])
    with pytest.raises(AdmissionRefused, match="no free GPU"):
        await node.run(others[1])
    node.runtime.containers.clear()
    await later(node)
    assert one.uid not in [a.owner for a in node.allocator.node.journal.live()]


async def test_the_plan_of_a_gpu_is_followed_soon_after_the_last_container_on_it_has_ended(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A static pod that is removed leaves the list of pods before its container has ended."""
    monkeypatch.setattr(allocator, "LINGERING_SECONDS", 0.01)
    one = pod("a", container(30, 4), predicate_gpu_idx_0="0")
    await node.run(one)
    node.runtime.containers.append(node.live_container(one))
    node.delete(one.uid)
    node.clock.now += 5

    await node.allocator.reconcile()
    assert "lingering" in kinds(node)
    passes = asyncio.create_task(node.allocator.reconcile_every(SECONDS))
    node.held.clear()
    node.runtime.containers.clear()
    await until(lambda: "lingering" not in kinds(node), SECONDS / 2)
    passes.cancel()
    whole = pod("b", container(100, 4), predicate_gpu_idx_0="0")
    await node.run(whole)

    assert node.gpus_of(whole) == ("/dev/nvidia0",)


async def test_what_the_kubelet_gives_and_nobody_recorded_is_held(node: Node) -> None:
    one = pod("a", container(30, 4))
    node.listing.listed[one.uid] = one
    for resource, count in ((VCORE, 30), (VMEMORY, 4)):
        offered = [device.device_id for device in node.allocator.devices(resource)]
        node.held[one.uid, "main", resource] = set(offered[:count])
    node.write_checkpoint()

    await node.allocator.reconcile()
    assert kinds(node) == ["unrecorded"]
    await later(node)

    (held,) = node.allocator.node.journal.live()
    assert (held.owner, held.cores, held.blocks) == (one.uid, 30, 4)
    await later(node)
    assert kinds(node) == []


async def test_what_was_settled_while_no_pods_could_be_read_has_its_pod_s_name_later(
    node: Node,
) -> None:
    one = pod("a", container(30, 4), vcuda_core_limit="80")
    node.listing.readable = False
    await node.run(one)
    (before,) = node.allocator.node.journal.live()

    node.listing.readable = True
    await later(node)

    (after,) = node.allocator.node.journal.live()
    assert (before.pod and before.pod.name, before.ceiling) == ("", None)
    assert str(after.pod) == "default/a (main)"
    assert after.ceiling == 80
    (limit,) = node.virtual.open_now[after.id]
    assert limit.ceiling == 80
    assert JournalFile(node.directory / JOURNAL).load().live() == (after,)


async def test_directories_that_nobody_owns_are_removed_and_others_are_not(node: Node) -> None:
    one = pod("a", container(30, 4))
    await node.run(one)
    mounted = pod("mounted", container(10, 1))
    await node.run(mounted)
    node.runtime.containers.append(node.live_container(mounted))
    left = AllocationID("left-over")
    node.virtual.kept[left] = ()
    owned = set(node.virtual.kept) - {left}
    (node.directory / "allocations.json").unlink()
    node.allocator = node.new_allocator()

    await node.allocator.reconcile()

    assert set(node.virtual.kept) == owned


async def test_no_directory_is_removed_while_nobody_can_say_who_has_it(node: Node) -> None:
    node.virtual.kept[AllocationID("somebodys")] = ()
    node.runtime.answers = False

    await later(node)

    assert kinds(node) == ["directory"]
    assert list(node.virtual.kept) == ["somebodys"]


async def test_a_container_with_an_allocation_that_nobody_knows_is_reported(node: Node) -> None:
    one = pod("a", container(30, 4))
    await node.run(one)
    node.runtime.containers.append(node.live_container(one))
    (node.directory / "allocations.json").unlink()
    node.allocator = node.new_allocator()

    await node.allocator.reconcile()

    assert "unknown-container" in kinds(node)


async def test_a_pod_that_still_computes_keeps_its_gpu(node: Node) -> None:
    one = pod("a", container(30, 4))
    await node.run(one)
    gpu = node.topology.gpus[0].uuid
    node.tenants.found = {gpu: frozenset({one.uid})}
    node.delete(one.uid)

    await later(node)
    await later(node)
    assert [a.owner for a in node.allocator.node.journal.live()] == [one.uid]

    node.tenants.found = {gpu: frozenset()}
    await later(node)
    assert node.allocator.node.journal.live() == ()


async def test_a_pod_with_processes_on_a_gpu_it_was_not_promised_is_reported(node: Node) -> None:
    one = pod("a", container(30, 4))
    await node.run(one)
    held, other = (gpu.uuid for gpu in node.topology.gpus)
    node.tenants.found = {held: frozenset({one.uid}), other: frozenset({one.uid})}
    for _ in range(PASSES_PER_RUNTIME_LIST):
        await later(node)

    assert [(d.kind, d.what, d.detail) for d in node.allocator.disagreements] == [
        ("stranger", one.uid, f"has processes on {other}")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_disagreement_is_documented(kind: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "recovery.md"

    assert f"| `{kind}` | {KINDS[kind]} |" in page.read_text()


async def test_a_swap_is_healed_counted_and_its_pods_are_corrected(node: Node) -> None:
    first, second = pod("a", container(30, 4)), pod("b", container(30, 2))
    await node.admit(first)
    await node.admit(second)
    swap(node, first.uid, second.uid)

    await node.start(first)
    await node.start(second)

    assert node.allocator.mismatches == 2
    for one in (first, second):
        (limit,) = node.limits(one)
        assert limit.memory == (one.containers[0].blocks or 0) << 28
        assert node.annotated.gpus[one.uid, "main"] == (limit.gpu,)


async def test_without_a_swap_none_is_counted(node: Node) -> None:
    for name in ("a", "b"):
        await node.run(pod(name, container(30, 4)))

    assert node.allocator.mismatches == 0


def swap(node: Node, one: PodUID, other: PodUID) -> None:
    """The kubelet gave each the cores, and the answer, that were meant for the other."""
    mine, theirs = (one, "main", VCORE), (other, "main", VCORE)
    node.held[mine], node.held[theirs] = node.held[theirs], node.held[mine]
    a, b = (one, "main"), (other, "main")
    node.answers[a], node.answers[b] = node.answers[b], node.answers[a]
    node.write_checkpoint()


async def test_where_the_kubelet_s_books_alone_say_that_a_pod_is_gone_it_keeps_what_it_has(
    node: Node,
) -> None:
    """A kubelet that lost them has begun new ones."""
    await node.run(running := pod("running", container(30, 4)))
    node.held.clear()
    node.write_checkpoint()
    node.listing.readable = node.runtime.answers = False

    for _ in range(2):
        node.clock.now += 60
        await node.allocator.reconcile()

    assert node.limits(running)[0].cores == 30
