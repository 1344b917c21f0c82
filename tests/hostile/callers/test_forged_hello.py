"""What a tenant says at its socket costs nobody else anything.

Before, one HELLO had the small pods of all neighbours refused, one lock made each HELLO a thousand
tries, a flood filled the log, and a thousand processes took all descriptors of the agent.
"""

import re

import pytest

from gpumanager.sim.agent import AgentProcess
from tests.hostile.hostile_node import HostileNode, hostile, pod
from tests.waiting import until

pytestmark = pytest.mark.namespaces

SMALL = 1
"""Blocks of memory: 256 MiB."""


def log_of(node: HostileNode) -> list[str]:
    return node.node.disk.agent_log.read_text().splitlines()


async def test_a_context_that_is_assumed_for_one_is_not_assumed_for_its_neighbours() -> None:
    hold = ("cuda-play", "hold", "--memory", "32MiB", "--seconds", "0.1")
    async with HostileNode() as node:
        async with node.beside(
            hostile("evil", "ask_to_be_measured.py", 600, cores=10, memory=SMALL)
        ):
            await until(lambda: bool(node.said["evil"]))
            (result,) = await node.run(pod("victim", hold, cores=20, memory=SMALL))
        assert result.exit_code == 0
        assert result.measured.memory_denied == 0


async def test_a_tenant_that_locks_all_slots_is_refused_after_a_few() -> None:
    async with HostileNode() as node:
        evil = hostile("evil", "lock_all_slots.py", 1)
        async with node.beside(evil):
            await until(lambda: bool(node.said["evil"]))
            (good,) = await node.run(hostile("good", "say_hello.py"))
        assert node.said["evil"][0] == "locked out -28"
        assert good.exit_code == 0
        assert node.said["good"][0].startswith("status 0")


@pytest.mark.parametrize("kind", ["hello", "junk"])
async def test_a_flood_is_a_line_in_the_log(kind: str) -> None:
    async with HostileNode() as node:
        quiet = len(log_of(node))
        await node.run(hostile("evil", "flood.py", 3000, kind))
        assert node.said["evil"][0].startswith("done 3000 ")
        assert len(log_of(node)) < quiet + 50


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may have no more than 1,024, as some container runtimes have it."""
    command = AgentProcess.command

    def limited(agent: AgentProcess, kubelet_endpoint: str) -> list[str]:
        return ["prlimit", "--nofile=1024:1024", *command(agent, kubelet_endpoint)]

    monkeypatch.setattr(AgentProcess, "command", limited)


@pytest.mark.usefixtures("few_descriptors")
async def test_a_crowd_of_one_tenant_leaves_descriptors_for_others() -> None:
    async with HostileNode() as node:
        crowd = hostile("evil", "many_processes.py", 1000, 600)
        async with node.beside(crowd):
            await until(lambda: bool(node.said["evil"]))
            await node.run(hostile("good", "say_hello.py"))
        assert node.said["evil"] == ["seated 1000"]
        assert node.said["good"][0].startswith("status 0")
        assert not any(re.search("Too many open files", line) for line in log_of(node))
