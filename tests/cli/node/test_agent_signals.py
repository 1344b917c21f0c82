"""What a hangup does to a running agent; the simulated node has a real one."""

import os
import signal

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from tests.waiting import until

BOUND = 120.0
REGISTERED = "registered with the kubelet"
MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]


async def test_a_hangup_makes_the_agent_register_again_and_go_on() -> None:
    async with SimulatedNode(load_machine("single")) as node:
        log = node.disk.agent_log
        # The kubelet may list our devices before its answer arrives: then there is nothing yet
        # that the agent could do again.
        await until(lambda: REGISTERED in log.read_text(), BOUND)

        os.kill(node.agent.pid, signal.SIGHUP)

        await until(lambda: log.read_text().count(REGISTERED) >= 2, BOUND)
        await node.kubelet.wait_for_devices((VCORE, VMEMORY), BOUND)
