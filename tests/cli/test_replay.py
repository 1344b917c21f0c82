"""`gpumanager replay`: its JSON is an interface, its tables are for people."""

import json
import re
from pathlib import Path

import pytest

from gpumanager.cli import replay, run

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    """Two nodes with two GPUs each; eight halves fit exactly, and a pod that fits nowhere."""
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    halves = "".join(f"half-{number},1000,1024,1,500,\n" for number in range(8))
    pods.write_text(f"{PODS}{halves}large,1000,1024,4,1000,T4\n")
    nodes.write_text(f"{NODES}n0,64000,262144,2,T4\nn1,64000,262144,2,P100\n")
    return ["--pods", str(pods), "--nodes", str(nodes)]


def test_json_tells_what_was_given_away(
    trace: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(["replay", *trace, "--seed", "3", "--load", "2", "--json"])

    printed = json.loads(capsys.readouterr().out)
    assert status == 0
    assert printed.pop("decisions_per_second") > 0
    assert printed.pop("gpu_allocation_percent_at_100") in range(50, 101)
    assert printed == {
        "policy": "least-waste",
        "seed": 3,
        "load": 2.0,
        "pods": 9,
        "placed": 8,
        "gpu_allocation_percent": 100.0,
        "gpu_allocation_percent_by_model": {"T4": 100.0, "P100": 100.0},
    }


def test_each_policy_and_seed_is_a_line(
    trace: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--policy", "spread", "--policy", "binpack", "--seed", "1", "--seed", "2"]

    status = run(["replay", *trace, *asked, "--load", "0.5", "--ties", "names", "--json"])

    runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert [(one["policy"], one["seed"]) for one in runs] == [
        ("spread", 1),
        ("binpack", 1),
        ("spread", 2),
        ("binpack", 2),
    ]


def test_the_same_seed_gives_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["replay", "--synthetic", "mixed", "--synthetic-nodes", "20", "--json"]

    answers = []
    for _ in range(2):
        assert run(asked) == 0
        answers.append(json.loads(capsys.readouterr().out))

    assert [answer.pop("decisions_per_second") > 0 for answer in answers] == [True, True]
    assert answers[0] == answers[1]


def test_the_table_fits_on_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = [word for name in replay.POLICIES for word in ("--policy", name)]

    status = run(["replay", "--synthetic", "mixed", "--synthetic-nodes", "20", *asked])

    printed = capsys.readouterr().out
    assert status == 0
    assert "…" not in printed
    assert "at 130 %" in printed
    assert all(printed.count(f" {name}") == 1 for name in replay.POLICIES)


def test_progress_is_shown_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "LINE_SECONDS", 0.0)

    assert run(["replay", "--synthetic", "shared", "--synthetic-nodes", "20"]) == 0

    shown = capsys.readouterr()
    assert re.search(r"^least-waste, seed 42: 50 pods, \d+ % allocated$", shown.err, re.MULTILINE)
