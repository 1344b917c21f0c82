"""A second agent on a node is refused.

Before, it ran beside the first one, and both wrote one journal.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.agent import AgentProcess
from tests.hostile.hostile_node import HostileNode, pod

pytestmark = pytest.mark.namespaces


@asynccontextmanager
async def second_agent() -> AsyncIterator[HostileNode]:
    """A node on which another agent waits for the first one's end."""
    async with HostileNode() as node:
        second = AgentProcess(node.node.disk, {})
        await second.start(node.node.kubelet.http.endpoint)
        try:
            await node.agent_says("another agent of this node holds it")
            yield node
        finally:
            await second.kill()


async def test_a_second_agent_waits_and_touches_nothing() -> None:
    async with second_agent() as node:
        assert "process " in node.node.disk.agent_log.read_text()
        refused = await node.node.admit(pod("one", ("true",)))
        text = node.node.disk.agent_log.read_text()

    assert refused is None
    assert text.count("registered with the kubelet") == 1
    assert "is held again" not in text


async def test_the_next_agent_starts_after_one_that_was_killed() -> None:
    async with HostileNode() as node:
        await node.node.kill_agent()
        await node.node.start_agent()

        assert await node.node.admit(pod("one", ("true",))) is None


async def test_a_new_agent_takes_over_when_the_old_one_ends() -> None:
    async with second_agent() as node:
        await node.node.agent.stop()
        await node.agent_says("registered with the kubelet", times=2)
        await node.node.kubelet.wait_for_devices((VCORE, VMEMORY), 120.0)
        assert await node.node.admit(pod("one", ("true",))) is None
