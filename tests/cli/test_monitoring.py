"""What makes the agent ready, and what it says until then."""

from pathlib import Path

import pytest

from gpumanager.cli.monitoring import Monitoring, not_ready
from gpumanager.settings import AgentSettings, node_name


class Standing:
    """A plugin and an allocator, as far as they are asked."""

    def __init__(self, *, recovered: bool, **registered: bool) -> None:
        self.recovered = recovered
        self.registered_resources = registered


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        (Standing(recovered=False, a=False, b=False), "the journal is not loaded yet"),
        (Standing(recovered=True, a=True, b=False), "not registered with the kubelet: b"),
        (Standing(recovered=True, a=False, b=False), "not registered with the kubelet: a, b"),
        (Standing(recovered=True, a=True, b=True), ""),
    ],
)
def test_an_agent_is_ready_with_its_journal_and_both_resources(
    standing: Standing, why: str
) -> None:
    assert not_ready(standing, standing) == why  # type: ignore[arg-type]


def test_a_node_is_called_as_its_pod_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "gpu-7")
    assert AgentSettings().hostname_override == "gpu-7"

    monkeypatch.delenv("NODE_NAME")
    assert node_name() == node_name().lower() != ""


def test_the_journal_that_is_timed_is_the_agent_s(tmp_path: Path) -> None:
    monitoring = Monitoring(AgentSettings(checkpoint_path=tmp_path))

    assert monitoring.journal.path == tmp_path / "allocations.json"
