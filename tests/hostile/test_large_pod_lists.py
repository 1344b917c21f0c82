"""Pods of others, however large, do not hide from the agent who is being admitted.

Before, a hundred pods with 250 KB of annotations each made the kubelet's list of pods so long that
it was not read in time: the agent did not know for whom it granted.
"""

import pytest
from hostile_node import HostileNode, pod

pytestmark = pytest.mark.namespaces

MANY = 110
NOTES = {f"note{number}": "x" * 50_000 for number in range(5)}
BLIND = "cannot read the kubelet's pods"


async def test_no_look_is_blind_because_of_large_pods() -> None:
    async with HostileNode() as node:
        for number in range(MANY):
            plain = pod(f"plain{number}", ("sleep", "600"), cores=0, annotations=NOTES)
            assert await node.node.admit(plain) is None
        # The first look at so long a list may come too late: it tells how long the next one takes.
        await node.run(pod("first", ("true",), cores=5, memory=1))
        before = node.node.disk.agent_log.read_text().count(BLIND)

        for number in range(3):
            await node.run(pod(f"gpu{number}", ("true",), cores=5, memory=1))

        assert node.node.disk.agent_log.read_text().count(BLIND) == before
