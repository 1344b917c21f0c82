"""A second agent on a node is refused.

Before, it ran beside the first one, and both wrote one journal.
"""

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.agent import AgentProcess
from tests.hostile.hostile_node import HostileNode, pod

pytestmark = pytest.mark.namespaces


async def test_a_second_agent_waits_and_touches_nothing() -> None:
    async with HostileNode() as node:
        disk = node.node.disk
        second = AgentProcess(disk, {})
        await second.start(node.node.kubelet.http.endpoint)
        try:
            await node.agent_says("another agent of this node holds it")
            assert "process " in disk.agent_log.read_text()
            refused = await node.node.admit(pod("one", ("true",)))
            text = disk.agent_log.read_text()
        finally:
            await second.kill()

    assert refused is None
    assert text.count("registered with the kubelet") == 1
    assert "is held again" not in text


async def test_the_next_agent_starts_after_one_that_was_killed() -> None:
    async with HostileNode() as node:
        await node.node.kill_agent()
        await node.node.start_agent()

        assert await node.node.admit(pod("one", ("true",))) is None


async def test_a_new_agent_takes_over_when_the_old_one_ends() -> None:
    async with HostileNode() as node:
        disk = node.node.disk
        second = AgentProcess(disk, {})
        await second.start(node.node.kubelet.http.endpoint)
        try:
            await node.agent_says("another agent of this node holds it")
            await node.node.agent.stop()
            await node.agent_says("registered with the kubelet", times=2)
            await node.node.kubelet.wait_for_devices((VCORE, VMEMORY), 60.0)
            assert await node.node.admit(pod("one", ("true",))) is None
        finally:
            await second.kill()
