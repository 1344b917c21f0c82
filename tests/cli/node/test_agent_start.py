"""An agent loads nothing of the simulators nor of what draws on terminals.

Told by what Python says it imports, not by a clock.
"""

import asyncio
import re

import pytest

from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode

BOUND = 120.0
MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]

AGENT = "gpumanager.agent.wiring"
NEVER = {"gpumanager.sim.node", "rich", "textual"}


@pytest.fixture
async def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of an agent's log up to its registration, imports among them."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    async with SimulatedNode(load_machine("single")) as node, asyncio.timeout(BOUND):
        while True:
            lines = node.disk.agent_log.read_text().splitlines()
            if any("registered with the kubelet" in line for line in lines):
                return lines
            await asyncio.sleep(0.05)


def imported(lines: list[str]) -> list[str]:
    found = (re.match(r"import time: +\d+ \| +\d+ \| +(\S+)$", line) for line in lines)
    return [one[1] for one in found if one]


def test_an_agent_does_not_load_what_it_does_not_use(said: list[str]) -> None:
    found = set(imported(said))

    assert AGENT in found
    assert found & NEVER == set()
