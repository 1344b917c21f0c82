"""What Allocate will be asked is worked out before: nobody can tell, except by a clock."""

import asyncio
from pathlib import Path

import pytest
from admission_node import JOURNAL, Node, container, gpus, pod

from gpumanager.deviceplugin.admission.admission import PAIR_AGE
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnwritable
from gpumanager.isolation.answer import ENV_ALLOCATION, Answer
from gpumanager.kubelet.pods import PodView
from gpumanager.names import VCORE, VMEMORY
from gpumanager.virtual.values import AllocationID

LONE = pod("lone", container(30, 4))


class FullDisk(JournalFile):
    def _append(self, _text: bytes) -> None:
        raise OSError("no space left on device")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def offered(node: Node, one: PodView = LONE, resource: str = VCORE) -> tuple[str, ...]:
    """IDs for the first half of a pod that is being admitted, and a moment to think."""
    node.listing.listed[one.uid] = one
    size = one.containers[0].cores if resource == VCORE else one.containers[0].blocks
    ids = await node.allocator.preferred(resource, sorted(node.free(resource)), (), size or 0)
    await asyncio.sleep(0)
    return ids


async def allocated(allocator: Allocator, ids: tuple[str, ...]) -> Answer:
    answer = await allocator.allocate(VCORE, ids)
    assert isinstance(answer, Answer)
    return answer


def on_disk(node: Node) -> Journal:
    return JournalFile(node.directory / JOURNAL).load()


async def test_the_directory_is_there_before_allocate_and_is_the_one_it_answers(
    node: Node,
) -> None:
    ids = await offered(node)

    (ahead,) = node.virtual.open_now
    answer = await allocated(node.allocator, ids)

    assert answer.envs[ENV_ALLOCATION] == ahead
    assert [one.allocation for one in on_disk(node).live()] == [ahead]


async def test_what_is_foreseen_is_promised_to_nobody(node: Node) -> None:
    await offered(node)

    assert node.allocator.journal.live() == ()
    assert on_disk(node) == Journal()


@pytest.mark.parametrize("resource", [VCORE, VMEMORY])
async def test_foreseen_or_not_the_same_is_granted(tmp_path: Path, resource: str) -> None:
    found = []
    for name, foreseen in (("early", 1.0), ("late", 0.0)):
        (tmp_path / name).mkdir()
        one = Node(tmp_path / name, gpus(4))
        one.foreseen = foreseen
        other = VMEMORY if resource == VCORE else VCORE
        for number in range(6):
            await one.admit(pod(f"p{number}", container(40, 5)), order=(resource, other))
        held = [(a.gpus, a.core_ids, a.memory_ids, a.why) for a in on_disk(one).live()]
        found.append((held, [list(limits) for limits in one.virtual.open_now.values()]))

    assert found[0] == found[1]


async def test_devices_as_foreseen_in_any_order_were_decided_about_before(node: Node) -> None:
    ids = await offered(node)
    asked = node.clock.now

    await allocated(node.allocator, ids[::-1])

    (held,) = on_disk(node).live()
    assert held.time <= asked


async def test_other_devices_than_foreseen_are_decided_about_by_themselves(node: Node) -> None:
    ids = await offered(node)
    others, asked = tuple(sorted(node.free(VCORE) - {*ids}))[-len(ids) :], node.clock.now

    await allocated(node.allocator, others)

    (held,) = on_disk(node).live()
    assert set(held.core_ids) == set(others)
    assert held.time > asked


async def test_a_gpu_that_falls_ill_meanwhile_is_not_given_because_it_was_foreseen(
    node: Node,
) -> None:
    ids = await offered(node)
    (named,) = {one.gpu.uuid for one in map(node.allocator.ledger.ids.decode, ids)}

    node.allocator.mark_unhealthy([named])
    answer = await node.allocator.allocate(VCORE, ids)

    assert isinstance(answer, Answer)
    assert named not in on_disk(node).live()[0].gpus


async def test_a_reconciliation_in_between_leaves_the_directory_and_reports_nothing(
    node: Node,
) -> None:
    node.write_checkpoint()
    ids = await offered(node)
    ahead = set(node.virtual.open_now)

    await node.allocator.reconcile()

    assert set(node.virtual.open_now) == ahead
    assert node.allocator.disagreements == ()
    await allocated(node.allocator, ids)


async def test_a_directory_that_is_never_asked_for_goes(node: Node) -> None:
    node.write_checkpoint()
    await offered(node)
    node.clock.now += PAIR_AGE

    await node.allocator.reconcile()

    assert node.virtual.kept == {}


async def test_a_directory_that_went_before_allocate_is_there_after_it(node: Node) -> None:
    node.write_checkpoint()
    ids = await offered(node)
    node.clock.now += PAIR_AGE
    await node.allocator.reconcile()

    answer = await allocated(node.allocator, ids)

    assert list(node.virtual.kept) == [answer.envs[ENV_ALLOCATION]]


async def test_limits_that_are_set_back_before_allocate_are_set_again_by_it(node: Node) -> None:
    node.listing.listed[LONE.uid] = LONE
    cores = await offered(node)
    half = (await allocated(node.allocator, cores)).envs[ENV_ALLOCATION]
    blocks = await offered(node, resource=VMEMORY)
    promised = node.virtual.open_now[AllocationID(half)]
    node.virtual.open_now.clear()

    await node.allocator.serve_again()
    await node.allocator.allocate(VMEMORY, blocks)

    assert node.virtual.open_now[AllocationID(half)] == promised


async def test_an_agent_killed_before_allocate_leaves_nothing_to_the_next(node: Node) -> None:
    await node.allocator.recover()
    await offered(node)

    await node.restart_agent()

    assert node.virtual.kept == {}


async def test_a_foreseen_promise_that_cannot_be_written_is_not_made(node: Node) -> None:
    file = FullDisk(node.directory / JOURNAL)
    node.allocator = node.new_allocator(file)
    await node.allocator.recover()
    ids = await offered(node)

    with pytest.raises(JournalUnwritable):
        await node.allocator.allocate(VCORE, ids)

    assert on_disk(node).live() == ()
    assert node.virtual.kept == {}
