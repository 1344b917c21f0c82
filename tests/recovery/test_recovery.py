"""Agents that start without their journal: what others prove is held, and nothing twice."""

from pathlib import Path

import pytest

from gpumanager.gpu.values import topology
from gpumanager.grants.journal_file import JournalFile
from gpumanager.ids import AllocationID
from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.limits.values import Limit
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK, Bytes
from tests.deviceplugin.admission.admission_node import (
    JOURNAL,
    AdmissionRefused,
    Node,
    container,
    pod,
)

CHECKPOINT = "kubelet_internal_checkpoint"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def lose_the_journal(node: Node) -> None:
    (node.directory / JOURNAL).unlink()


async def restart_with_directories_alone(node: Node) -> None:
    """Nothing else tells of who holds what."""
    lose_the_journal(node)
    (node.directory / CHECKPOINT).unlink()
    node.runtime.answers = False
    await node.restart_agent()


def damage_the_journal(node: Node) -> None:
    path = node.directory / JOURNAL
    path.write_bytes(path.read_bytes()[200:])


async def two_pods(node: Node) -> tuple[PodView, PodView]:
    """A share and a whole GPU, both running."""
    share = pod("share", container(30, 4), vcuda_core_limit="70")
    whole = pod("whole", container(100, 0))
    for one in (share, whole):
        await node.run(one)
        node.runtime.containers.append(node.live_container(one))
    return share, whole


async def nothing_is_given_twice(node: Node) -> None:
    """What is left of two GPUs of which one is whole for a pod and 30 % and 4 blocks are gone."""
    with pytest.raises(AdmissionRefused):
        await node.admit(pod("too large", container(71, 1)))
    with pytest.raises(AdmissionRefused):
        await node.admit(pod("too much memory", container(10, 13)))
    await node.run(pod("fits", container(70, 12)))


@pytest.mark.parametrize("lose", [lose_the_journal, damage_the_journal])
async def test_what_the_kubelet_knows_is_held_and_served_as_before(
    node: Node, lose: object
) -> None:
    share, whole = await two_pods(node)
    served = dict(node.virtual.open_now)
    before = {a.id: a.gpus for a in node.allocator.node.journal.live()}

    lose(node)  # type: ignore[operator]
    await node.restart_agent()

    assert {a.id: a.gpus for a in node.allocator.node.journal.live()} == before
    assert node.virtual.open_now == served
    await node.start(share)
    await node.start(whole)
    await nothing_is_given_twice(node)


async def test_a_damaged_journal_is_kept_aside_and_said_loudly(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await two_pods(node)
    damage_the_journal(node)
    contents = (node.directory / JOURNAL).read_bytes()

    await node.restart_agent()

    (aside,) = node.directory.glob(f"{JOURNAL}.damaged-*")
    assert aside.read_bytes() == contents
    assert str(aside) in caplog.text
    assert "cannot read the journal" in caplog.text
    assert JournalFile(node.directory / JOURNAL).load() == node.allocator.node.journal


async def test_what_is_whole_in_a_damaged_journal_is_held_although_nobody_else_knows_it(
    node: Node,
) -> None:
    await two_pods(node)
    (node.directory / CHECKPOINT).unlink()
    node.runtime.answers = False
    damage_the_journal(node)

    await node.restart_agent()

    assert {(a.owner, a.cores) for a in node.allocator.node.journal.live()} == {
        ("uid-share", 30),
        ("uid-whole", 100),
    }
    await nothing_is_given_twice(node)


async def test_without_the_kubelets_books_too_what_runs_is_held(node: Node) -> None:
    share, _ = await two_pods(node)
    lose_the_journal(node)
    (node.directory / CHECKPOINT).unlink()

    await node.restart_agent()

    assert node.limits(share)[0].memory == 4 * MEMORY_BLOCK
    node.held.clear()  # the kubelet has begun anew
    await nothing_is_given_twice(node)


async def test_where_nobody_tells_anything_a_directory_is_enough_to_hold(node: Node) -> None:
    share = pod("share", container(30, 4))
    await node.run(share)
    lose_the_journal(node)
    (node.directory / CHECKPOINT).unlink()
    node.runtime.answers = False
    node.listing.readable = False

    await node.restart_agent()

    (held,) = node.allocator.node.journal.live()
    assert (held.cores, held.blocks, held.owner) == (30, 4, None)
    assert node.limits(share)[0].cores == 30


async def test_what_was_held_without_proof_is_free_once_the_kubelet_says_so(node: Node) -> None:
    share = pod("share", container(30, 4))
    await node.run(share)
    await restart_with_directories_alone(node)

    node.delete(share.uid)
    node.held.clear()
    node.write_checkpoint()
    node.clock.now += 60
    await node.allocator.reconcile()

    assert node.allocator.node.journal.live() == ()
    assert node.virtual.kept == {}


async def test_more_than_a_gpu_has_may_look_used_and_then_nothing_is_free(node: Node) -> None:
    """Directories that nobody has removed yet; whoever really has one keeps its limits."""
    for number in range(3):
        limit = Limit(node.topology.gpus[0].uuid, Bytes(8 * MEMORY_BLOCK), 60, 60)
        node.virtual.kept[AllocationID(f"left-{number}")] = (limit,)
    node.runtime.answers = False

    await node.restart_agent()

    assert {limits[0].cores for limits in node.virtual.open_now.values()} == {60}
    advertised = node.allocator.devices(VCORE)
    assert len(advertised) == 200
    assert all(one.healthy for one in advertised)
    tiny = pod("tiny", container(1, 1))
    await node.run(tiny)
    assert node.gpus_of(tiny) == ("/dev/nvidia1",)


async def test_a_pod_that_has_ended_is_not_held_again(node: Node) -> None:
    share, _ = await two_pods(node)
    node.runtime.containers.clear()
    node.fail(share.uid, "Succeeded")
    lose_the_journal(node)

    await node.restart_agent()

    assert [a.owner for a in node.allocator.node.journal.live()] == ["uid-whole"]


async def test_a_container_that_outlives_its_pod_keeps_its_gpu(node: Node) -> None:
    share, _ = await two_pods(node)
    node.delete(share.uid)
    node.held = {k: ids for k, ids in node.held.items() if k[0] != share.uid}
    node.write_checkpoint()
    lose_the_journal(node)

    await node.restart_agent()

    assert {a.owner for a in node.allocator.node.journal.live()} == {share.uid, "uid-whole"}
    await nothing_is_given_twice(node)


async def test_init_containers_and_their_heirs_are_held_once(node: Node) -> None:
    both = pod(
        "both",
        container(60, 8, "prepare", ContainerKind.INIT),
        container(60, 8, "main"),
    )
    await node.run(both)
    lose_the_journal(node)

    await node.restart_agent()

    await node.start(both, "main")
    await node.run(pod("other", container(40, 8)))
    with pytest.raises(AdmissionRefused):
        await node.run(pod("third", container(100, 0), container(10, 1, "second")))


async def test_a_container_answered_by_an_agent_that_forgot_it_starts_all_the_same(
    node: Node,
) -> None:
    """The last line of the journal is lost, and with it an answer that the kubelet has."""
    await node.run(pod("before", container(30, 4)))
    kept = (node.directory / JOURNAL).read_bytes()
    late = pod("late", container(20, 2))
    await node.admit(late)
    (node.directory / JOURNAL).write_bytes(kept)
    checkpoint = (node.directory / CHECKPOINT).read_bytes()
    (node.directory / CHECKPOINT).unlink()
    await node.restart_agent()

    (node.directory / CHECKPOINT).write_bytes(checkpoint)
    await node.start(late)

    assert node.limits(late)[0].memory == 2 * MEMORY_BLOCK


async def test_a_fresh_node_begins_with_nothing(node: Node) -> None:
    await node.allocator.recover()

    assert node.allocator.node.journal.live() == ()
    assert node.allocator.foreign() == frozenset()


async def test_the_kubelet_s_books_take_the_place_of_what_a_directory_only_counted(
    node: Node,
) -> None:
    waiting = pod("waiting", container(30, 4))
    await node.admit(waiting)
    lose_the_journal(node)
    (node.directory / CHECKPOINT).unlink()
    await node.restart_agent()

    node.write_checkpoint()
    await node.start(waiting)

    assert node.limits(waiting)[0].cores == 30
    assert len(node.allocator.node.journal.live()) == 1


async def test_reconciling_keeps_whom_it_has_just_found_in_the_kubelet_s_books(node: Node) -> None:
    running = pod("running", container(30, 4))
    await node.run(running)
    await restart_with_directories_alone(node)

    node.write_checkpoint()
    for readable in (False, True, True):
        node.listing.readable = readable
        node.clock.now += 60
        await node.allocator.reconcile()

    assert node.limits(running)[0].cores == 30
    assert [a.owner for a in node.allocator.node.journal.live()] == [running.uid]


async def test_of_a_promise_whose_last_half_is_torn_off_the_kubelet_s_books_know_the_rest(
    node: Node,
) -> None:
    waiting = pod("waiting", container(30, 4))
    await node.admit(waiting, order=(VMEMORY, VCORE))
    path = node.directory / JOURNAL
    path.write_bytes(path.read_bytes().rstrip()[:-10])

    await node.restart_agent()
    await node.start(waiting)

    assert (node.limits(waiting)[0].cores, node.limits(waiting)[0].memory) == (30, 4 * MEMORY_BLOCK)


async def test_a_gpu_that_is_missing_while_the_journal_is_lost_is_whose_it_was_when_it_is_back(
    node: Node,
) -> None:
    held = pod("held", container(60, 10))
    await node.run(held)
    lose_the_journal(node)
    both = node.topology

    node.topology = topology(both.gpus[1:], [[None]])
    await node.restart_agent()
    await node.allocator.node.adopt(both)

    await node.run(whole := pod("whole", container(100, 0)))
    assert node.gpus_of(held) == ("/dev/nvidia0",)
    assert node.gpus_of(whole) == ("/dev/nvidia1",)
