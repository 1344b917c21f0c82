"""`gpumanager plan`: its JSON is an interface, its table is for people."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumanager.cli import run
from tests.cli.commands import SIX


@pytest.fixture
def six(tmp_path: Path) -> str:
    path = tmp_path / "six.txt"
    path.write_text(SIX)
    return str(path)


def asks(*requests: str) -> list[str]:
    return [word for request in requests for word in ("--request", request)]


def decisions(printed: str) -> list[dict[str, object]]:
    answers: list[dict[str, object]] = json.loads(printed)["decisions"]
    return answers


def test_json_tells_each_decision_in_order(six: str, capsys: pytest.CaptureFixture[str]) -> None:
    requests = asks("200", "30:8", "100", "300", "150", "30")
    assert run(["plan", "--topology", six, *requests, "--json"]) == 0

    *decided, odd, without_memory = decisions(capsys.readouterr().out)
    assert decided == [
        {"request": {"cores": 200, "blocks": 0}, "evaluator": "link", "gpus": [4, 5]},
        {"request": {"cores": 30, "blocks": 8}, "evaluator": "share", "gpus": [0]},
        {"request": {"cores": 100, "blocks": 0}, "evaluator": "fragment", "gpus": [1]},
        {
            "request": {"cores": 300, "blocks": 0},
            "refused": "no free GPU: 3 whole GPUs asked; 2 of 6 are free",
        },
    ]
    assert str(odd["refused"]).startswith("not a valid request")
    assert str(without_memory["refused"]).startswith("a share of a GPU needs memory")


def test_gpus_have_the_memory_and_the_use_that_flags_name(
    six: str, capsys: pytest.CaptureFixture[str]
) -> None:
    held = ["--occupied", "0=30:8", "--occupied", "0=20", "--occupied", "4=100"]
    run(["plan", "--topology", six, *held, *asks("50:56", "50:56", "1:64", "100"), "--json"])
    assert [answer["gpus"] for answer in decisions(capsys.readouterr().out)] == [[0], [1], [2], [3]]

    run(["plan", "--topology", six, "--memory", "1GiB", *asks("30:4", "30:5", "100:5"), "--json"])
    first, second, third = decisions(capsys.readouterr().out)
    assert first["gpus"] == [0]
    assert "the largest GPU has 4 blocks" in str(second["refused"])
    assert "1 whole GPU with 5 blocks asked; this machine has 0" in str(third["refused"])


def test_the_table_says_which_gpus_and_why(six: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--topology", six, *asks("200", "30:8", "150", "1:1", "100")]) == 0

    table = " ".join(capsys.readouterr().out.split())
    for words in (
        "6 GPUs of 16 GiB",
        "200 cores whole GPUs 4, 5 best linked set: PIX",
        "30 cores share 0 a free GPU, since no GPU in use had room",
        "1 core share 0",
        "1 block ",
        "100 cores whole GPU 1 keeps linked GPUs together",
        "150 cores refused - not a valid request: 150 cores asked",
    ):
        assert words in table


def test_standard_input_is_read_and_named_in_errors() -> None:
    words = [sys.executable, "-m", "gpumanager", "plan", "--topology", "-", *asks("100"), "--json"]

    good = subprocess.run(words, input=SIX, capture_output=True, text=True, check=True)
    bad = subprocess.run(
        words,
        input=SIX.replace("GPU1 PIX", "GPU1 PHB"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert decisions(good.stdout)[0]["gpus"] == [4]
    assert bad.returncode == 2
    assert bad.stderr.startswith("gpumanager: standard input:3: ")
