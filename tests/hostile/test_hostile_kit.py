"""The kit of this folder: a tenant speaks to the agent without the shim."""

import pytest

from tests.hostile.hostile_node import HostileNode, hostile, layout

pytestmark = pytest.mark.namespaces


async def test_a_tenant_without_the_shim_gets_its_books() -> None:
    async with HostileNode() as node:
        await node.run(hostile("one", "say_hello.py"))
        await node.agent_lives(0.2)
        assert node.said["one"] == [f"status 0 slot 0 books {layout()['books']}"]
