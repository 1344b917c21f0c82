"""Agents that die and start again: what was promised is served, what ended is released."""

from pathlib import Path

import pytest
from admission_node import (
    JOURNAL,
    Crash,
    CrashingFile,
    Node,
    container,
    pod,
)

from gpumanager.units import MEMORY_BLOCK


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_restarted_agent_serves_every_promise_again(node: Node) -> None:
    asked = pod("a", container(30, 4), vcuda_core_limit="70")
    await node.run(asked)
    before = dict(node.virtual.open_now)

    await node.restart_agent()

    assert node.virtual.open_now == before


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
    assert [a.owner for a in node.allocator.journal.live()] == [stays.uid]
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


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["_write", "_replace", "_force_directory"])
async def test_an_agent_that_dies_while_promising_has_answered_nothing_it_forgets(
    node: Node, step: str, *, after: bool
) -> None:
    before = pod("before", container(30, 4))
    await node.run(before)
    dying = CrashingFile(node.directory / JOURNAL, step, after=after)
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
