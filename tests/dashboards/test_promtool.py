"""What Prometheus' own tool says of rules and queries; with it each alert is tried out."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards import prometheus_programs
from tests.dashboards.chart_files import ROOT, RULES, asked

MISSING = "promtool is not there: install it, or python -m tests.dashboards.prometheus_programs"


@pytest.fixture(scope="module")
def promtool() -> Path:
    found = prometheus_programs.find("promtool")
    if found is None:
        pytest.skip(MISSING)
    return found


def run(*command: Any) -> None:
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=900
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_rules_are_rules(promtool: Path) -> None:
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", *RULES)


def test_each_alert_fires_when_it_should_and_not_otherwise(promtool: Path) -> None:
    run(promtool, "test", "rules", ROOT / "tests/dashboards/rules_test.yaml")


def test_every_query_of_the_dashboards_is_one(promtool: Path, tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": one.expr} for number, one in enumerate(asked())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))

    run(promtool, "check", "rules", path)
