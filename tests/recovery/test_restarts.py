"""Agents that die and start again: what was promised is served, what ended is released."""

import errno
import os
from pathlib import Path

import pytest

from gpumanager.grants.grant import Grant
from gpumanager.grants.journal_file import CHANGE_BYTES, JournalFile, JournalUnwritable
from gpumanager.grants.refusals import NotResolved
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.kube.pod import PodView
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.admission.admission_node import (
    BLOCKS,
    JOURNAL,
    Crash,
    CrashingFile,
    Node,
    container,
    gpus,
    pod,
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def allocated(node: Node, asked: PodView) -> Grant:
    (found,) = (one for one in node.allocator.node.journal.live() if one.owner == asked.uid)
    return found


async def test_a_restarted_agent_serves_every_promise_again(node: Node) -> None:
    asked = pod("a", container(30, 4), vcuda_core_limit="70")
    await node.run(asked)
    before = dict(node.virtual.open_now)

    await node.restart_agent()

    assert node.virtual.open_now == before


async def test_the_kubelet_is_answered_before_anything_is_served_again(node: Node) -> None:
    running, coming = pod("running", container(30, 4)), pod("coming", container(70, 12))
    await node.run(running)

    await node.register_new_agent()
    await node.run(coming)

    assert node.virtual.open_now.keys() == {allocated(node, coming).id}
    assert allocated(node, coming).gpus == allocated(node, running).gpus


async def test_what_is_settled_before_all_is_served_again_keeps_its_limits(node: Node) -> None:
    asked = pod("a", container(30, 4), vcuda_core_limit="70")
    node.listing.readable = False
    await node.admit(asked)
    node.listing.readable = True
    await node.register_new_agent()

    await node.start(asked)
    await node.allocator.serve_again()

    assert node.limits(asked)[0].ceiling == 70


async def test_what_has_ended_before_all_is_served_again_is_not_served(node: Node) -> None:
    ended, stays = pod("ended", container(20, 2)), pod("stays", container(20, 2))
    await node.run(ended)
    await node.run(stays)
    await node.register_new_agent()
    node.delete(ended.uid)
    node.clock.now += 5

    await node.allocator.reconcile()
    await node.allocator.serve_again()

    assert node.virtual.open_now.keys() == {allocated(node, stays).id}


async def test_an_agent_that_dies_before_all_is_served_again_loses_nothing(node: Node) -> None:
    before, between = pod("before", container(30, 4)), pod("between", container(70, 12))
    await node.run(before)
    await node.register_new_agent()
    await node.admit(between)

    await node.restart_agent()
    await node.start(between)

    assert node.limits(before)[0].memory == 4 * MEMORY_BLOCK
    assert node.limits(between)[0].memory == 12 * MEMORY_BLOCK


async def test_what_others_prove_is_on_the_disk_before_the_kubelet_may_ask(node: Node) -> None:
    await node.run(pod("a", container(30, 4)))
    (node.directory / JOURNAL).unlink()

    await node.register_new_agent()

    assert JournalFile(node.directory / JOURNAL).load().live() == node.allocator.node.journal.live()
    assert len(node.allocator.node.journal.live()) == 1


async def test_an_agent_restarted_between_allocate_and_start_settles_it(node: Node) -> None:
    asked = pod("a", container(30, 4))
    await node.admit(asked)

    await node.restart_agent()
    await node.start(asked)

    assert node.limits(asked)[0].memory == 4 * MEMORY_BLOCK


async def test_reconciling_releases_what_ended_and_nothing_else(node: Node) -> None:
    ended, gone, stays = (pod(name, container(20, 2)) for name in ("ended", "gone", "stays"))
    for each in (ended, gone, stays):
        await node.run(each)
    node.fail(ended.uid, "Succeeded")
    node.delete(gone.uid)
    node.clock.now += 5

    released = await node.allocator.reconcile()

    assert len(released) == 2
    assert [a.owner for a in node.allocator.node.journal.live()] == [stays.uid]
    assert len(node.virtual.open_now) == 1


async def test_a_pod_that_waits_long_for_its_image_keeps_what_it_was_promised(
    node: Node,
) -> None:
    waiting = pod("waiting", container(20, 2))
    await node.admit(waiting)
    await node.run(pod("other", container(20, 2)))
    node.clock.now += 600

    await node.allocator.reconcile()
    await node.start(waiting)

    assert node.limits(waiting)[0].cores == 20


EXTENDING = [(step, CHANGE_BYTES, 0) for step in ("_append", "_force")]
RENEWING = [(step, 0, 1) for step in ("_write", "_replace", "_force_directory")]
"""Steps of writing one line, and of a file without room for it; each begins with a new file."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("step", "room", "skip"), [*EXTENDING, *RENEWING])
async def test_an_agent_that_dies_while_promising_has_answered_nothing_it_forgets(
    node: Node, step: str, room: int, skip: int, *, after: bool
) -> None:
    before = pod("before", container(30, 4))
    await node.run(before)
    dying = CrashingFile(node.directory / JOURNAL, step, after=after, skip=skip, room=room)
    node.allocator = node.new_allocator(dying)
    await node.allocator.recover()

    with pytest.raises(Crash):
        await node.admit(pod("a", container(30, 4)))
    await node.restart_agent()

    await node.start(before)
    assert node.limits(before)[0].memory == 4 * MEMORY_BLOCK
    following = pod("b", container(70, 12))
    await node.run(following)
    assert node.limits(following)[0].cores == 70


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["_write", "_replace", "_force_directory"])
async def test_an_agent_that_dies_while_recovering_recovers_the_next_time(
    node: Node, step: str, *, after: bool
) -> None:
    before = pod("before", container(30, 4))
    await node.run(before)
    dying = node.new_allocator(CrashingFile(node.directory / JOURNAL, step, after=after))

    with pytest.raises(Crash):
        await dying.recover()
    await node.restart_agent()

    assert node.limits(before)[0].memory == 4 * MEMORY_BLOCK


class FullDisk(JournalFile):
    """No room for a new file, and none in the old one, while `full`."""

    full = False

    def _append(self, text: bytes) -> None:
        self._refuse()
        super()._append(text)

    def _write(self, contents: bytes) -> None:
        self._refuse()
        super()._write(contents)

    def _refuse(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_on_a_full_disk_nothing_is_promised_and_nothing_is_lost(node: Node) -> None:
    disk = FullDisk(node.directory / JOURNAL)
    node.allocator = node.new_allocator(disk)
    before, refused, after = (
        pod(name, container(30, 4)) for name in ("before", "refused", "after")
    )
    await node.run(before)

    disk.full = True
    with pytest.raises(JournalUnwritable, match="No space left"):
        await node.admit(refused)
    directories = set(node.virtual.open_now)
    disk.full = False
    node.fail(refused.uid)
    await node.run(after)

    assert directories == {node.answers[before.uid, "main"].envs["VCUDA_ALLOCATION"]}
    assert node.limits(before)[0].memory == node.limits(after)[0].memory == 4 * MEMORY_BLOCK


async def test_an_agent_starts_and_serves_what_runs_on_a_disk_that_takes_nothing(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    before = pod("before", container(30, 4))
    await node.run(before)
    node.virtual.open_now.clear()
    disk = FullDisk(node.directory / JOURNAL)
    disk.full = True

    node.allocator = node.new_allocator(disk)
    await node.allocator.recover()

    assert node.limits(before)[0].memory == 4 * MEMORY_BLOCK
    assert "No GPU is given out until it can be written" in caplog.text


@pytest.mark.parametrize("order", [(VCORE, VMEMORY), (VMEMORY, VCORE)])
async def test_a_pod_that_was_rejected_because_the_agent_died_leaves_no_promise_in_the_way(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """The next one asks for the other resource first: no device that is in the way is named."""
    node = Node(tmp_path, gpus(1))
    await node.admit(rejected := pod("rejected", container(60, 10)), order=order[:1])
    node.fail(rejected.uid)
    await node.restart_agent()

    await node.admit(after := pod("after", container(60, 10)), order=order[::-1])
    await node.start(after)

    assert node.limits(after)[0].cores == 60


async def test_what_the_kubelet_gave_a_second_time_is_not_held_twice(node: Node) -> None:
    """It has started without its books, and admits anew who waits for an image."""
    waiting = pod("waiting", container(60, 10))
    await node.admit(waiting)
    node.held.clear()
    await node.allocator.kubelet_started()
    await node.admit(waiting)

    for _ in range(2):
        node.clock.now += 60
        await node.allocator.reconcile()

    (held,) = node.allocator.node.journal.live()
    assert set(held.ids.core_ids) == node.held[waiting.uid, "main", VCORE]


async def test_devices_in_use_that_a_kubelet_without_its_books_gives_again_stay_in_use(
    node: Node,
) -> None:
    """Nobody tells in Allocate who has them; who starts with them waits until they are free."""
    first, second = pod("first", container(30, 4)), pod("second", container(30, 4))
    await node.run(first)
    node.runtime.containers.append(node.live_container(first))
    again = {r: sorted(node.held[first.uid, "main", r]) for r in (VCORE, VMEMORY)}
    node.held.clear()
    node.write_checkpoint()
    node.listing.readable = False
    await node.allocator.kubelet_started()
    node.listing.listed[second.uid] = second
    for resource, ids in again.items():
        assert isinstance(await node.allocator.allocate(resource, ids), ContainerEdits)
        node.held[second.uid, "main", resource] = {*ids}
    node.write_checkpoint()

    for _ in range(2):
        with pytest.raises(NotResolved, match=r"in use: default/first .* runs with them"):
            await node.start(second)
    held = [a for a in node.allocator.node.journal.live() if a.owner == first.uid]
    assert [(a.cores, a.suspect) for a in held] == [(30, False)]

    node.runtime.containers.clear()
    await node.start(second)

    (settled,) = [a for a in node.allocator.node.journal.live() if a.pod]
    assert settled.owner == second.uid


async def test_what_was_promised_stays_valid_where_less_of_a_gpu_is_promised_by_now(
    tmp_path: Path,
) -> None:
    """An agent that begins to leave out what the driver keeps finds a GPU promised to the last
    block; its containers are served, and may start again."""
    node = Node(tmp_path, gpus(2))
    full = [pod("a", container(30, BLOCKS // 2)), pod("b", container(30, BLOCKS // 2))]
    whole = pod("c", container(100, BLOCKS))
    for asked in (*full, whole):
        await node.run(asked)
    before = dict(node.virtual.open_now)

    node.topology = gpus(2, BLOCKS - 2)
    await node.restart_agent()

    assert node.virtual.open_now == before
    for asked in (*full, whole):
        await node.start(asked)
    assert node.virtual.open_now == before
    books = node.allocator.ledger.books(node.allocator.node.journal.live())
    assert [book.blocks for book in books.gpus.values()] == [0, 0]
