"""What makes the agent ready, and what it says until then."""

from pathlib import Path

import pytest

from gpumanager.cli.monitoring import Monitoring, not_ready
from gpumanager.deviceplugin.registration import Standing
from gpumanager.settings import AgentSettings


class Agent:
    """A plugin and an allocator, as far as they are asked."""

    def __init__(self, *, recovered: bool, **registered: bool) -> None:
        self.recovered = recovered
        self.standings = [
            Standing(name, served=True, registered=known, failure=None)
            for name, known in registered.items()
        ]


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        (Agent(recovered=False, a=False, b=False), "the journal is not loaded yet"),
        (Agent(recovered=True, a=True, b=False), "not registered with the kubelet: b"),
        (Agent(recovered=True, a=False, b=False), "not registered with the kubelet: a, b"),
        (Agent(recovered=True, a=True, b=True), ""),
    ],
)
def test_an_agent_is_ready_with_its_journal_and_both_resources(agent: Agent, why: str) -> None:
    assert not_ready(agent, agent) == why  # type: ignore[arg-type]


def test_the_journal_that_is_timed_is_the_agent_s(tmp_path: Path) -> None:
    monitoring = Monitoring(AgentSettings(checkpoint_path=tmp_path))

    assert monitoring.journal.path == tmp_path / "allocations.json"
