"""A real agent on a simulated node: what it loads, and what a hangup makes it do."""

import os
import re
import signal

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from tests.waiting import until

BOUND = 120.0
REGISTERED = "registered with the kubelet"
NEVER = {"gpumanager.sim.node", "rich", "textual"}


@pytest.mark.namespaces
async def test_an_agent_loads_nothing_needless_and_registers_again_after_a_hangup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither simulators nor what draws on terminals, as Python says of its imports."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    async with SimulatedNode(load_machine("single")) as node:
        log = node.disk.agent_log
        # The kubelet may list our devices before its answer arrives: then there is nothing yet
        # that the agent could do again.
        await until(lambda: REGISTERED in log.read_text(), BOUND)
        form = r"^import time: +\d+ \| +\d+ \| +(\S+)$"
        loaded = set(re.findall(form, log.read_text(), re.MULTILINE))

        os.kill(node.agent.pid, signal.SIGHUP)

        await until(lambda: log.read_text().count(REGISTERED) >= 2, BOUND)
        await node.kubelet.wait_for_devices((VCORE, VMEMORY), BOUND)

    assert "gpumanager.agent.wiring" in loaded
    assert loaded & NEVER == set()
