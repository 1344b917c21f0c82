"""The agent answers the kubelet before it does, or loads, anything that the kubelet can do without.

Told by what Python says it imports, in the order of the agent's log, not by a clock.
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

REGISTERED = "registered with the kubelet"
LATE = "all else begins without a kubelet"
"""A machine so busy that a registration takes more than a second; then nothing waits for it."""

LATER = {
    "gpumanager.cli.gpu_health",
    "gpumanager.cli.upkeep",
    "gpumanager.compute.shares",
    "gpumanager.monitor.service",
}
NEVER = {
    "elftools",
    "gpumanager.node.service",
    "gpumanager.sim.node",
    "importlib.metadata",
    "kubernetes",
    "logging.handlers",
    "prometheus_client",
    "rich",
    "yaml",
    "zipfile",
}
"""Without an API server and a directory for logs."""

AGENT = "gpumanager.cli.node_agent"


@pytest.fixture
async def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of an agent's log up to where all of it has begun, imports among them."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    async with SimulatedNode(load_machine("single")) as node, asyncio.timeout(BOUND):
        while True:
            lines = node.disk.agent_log.read_text().splitlines()
            if set(imported(lines)) >= LATER:
                return lines
            await asyncio.sleep(0.05)


def imported(lines: list[str]) -> list[str]:
    found = (re.match(r"import time: +\d+ \| +\d+ \| +(\S+)$", line) for line in lines)
    return [one[1] for one in found if one]


def test_what_the_kubelet_does_not_wait_for_is_imported_once_it_knows_of_the_agent(
    said: list[str],
) -> None:
    known = next(n for n, line in enumerate(said) if REGISTERED in line or LATE in line)

    assert AGENT in imported(said[:known])
    assert set(imported(said[:known])) & LATER == set()


def test_an_agent_does_not_load_what_it_does_not_use(said: list[str]) -> None:
    assert set(imported(said)) & NEVER == set()
