"""Joining a cluster, and living without one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumanager.agent.wiring import join
from gpumanager.node_status.service import NodeCluster, Standalone
from gpumanager.settings import AgentSettings
from tests.e2e.node.real_agent import API_RULES


async def test_a_node_without_an_api_server_says_so_once_and_lives(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    caplog.set_level("INFO")

    cluster = join(AgentSettings())

    assert isinstance(cluster, Standalone)
    assert len(caplog.records) == 1


async def test_a_kubeconfig_leads_to_its_cluster(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        '{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:8080"}}],'
        '"contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}'
    )

    cluster = join(AgentSettings(kubeconfig=path, hostname_override="n1"))

    assert isinstance(cluster, NodeCluster)
    assert str(cluster.api.access) == "http://127.0.0.1:8080"


def test_the_rules_that_are_documented_are_those_the_real_node_is_tested_with() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    block = text.partition("```yaml\n")[2].partition("```")[0]

    def plain(rules: Any) -> set[tuple[str, str]]:
        return {(what, verb) for one in rules for what in one["resources"] for verb in one["verbs"]}

    assert plain(yaml.safe_load(block)["rules"]) == plain(API_RULES)
