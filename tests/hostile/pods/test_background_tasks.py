"""No pod ends a background task of the agent.

Before, a number of 5,000 digits in an annotation ended the reconciler, also after each restart of
the agent: whatever had ended was never released again.
"""

import pytest

from gpumanager.sim.kubelet.versions import KUBELET_1_36
from tests.hostile.hostile_node import HostileNode, pod

pytestmark = pytest.mark.namespaces


async def test_a_pod_that_was_admitted_unseen_does_not_end_the_reconciler() -> None:
    """Its annotations are read by the reconciler first."""
    async with HostileNode("t4x4", KUBELET_1_36, **{"allocation-check-period": "100ms"}) as node:
        kubelet = node.node.kubelet.http
        annotations = {"tencent.com/vcuda-core-limit": "9" * 5000}
        evil = pod(
            "evil",
            ("sh", "-c", "echo runs; sleep 600"),
            cores=10,
            memory=1,
            annotations=annotations,
        )
        kubelet.answering.clear()
        async with node.beside(evil):
            await node.agent_says("cannot read the kubelet's pods")
            await node.first_line("evil")
            kubelet.answering.set()
            await node.agent_says("belongs to default/evil (main)")
            log = node.node.disk.agent_log.read_text()

    assert "has stopped" not in log
