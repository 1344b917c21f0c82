"""`gpumanager plan`: its JSON is an interface, its table is for people, its errors are one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumanager.cli import run

SIX = """\
GPU0 GPU1 GPU2 GPU3 GPU4 GPU5
GPU0 X PIX PHB PHB SOC SOC
GPU1 PIX X PHB PHB SOC SOC
GPU2 PHB PHB X PIX SOC SOC
GPU3 PHB PHB PIX X SOC SOC
GPU4 SOC SOC SOC SOC X PIX
GPU5 SOC SOC SOC SOC PIX X
"""


@pytest.fixture
def six(tmp_path: Path) -> str:
    path = tmp_path / "six.txt"
    path.write_text(SIX)
    return str(path)


def asks(*requests: str) -> list[str]:
    return [word for request in requests for word in ("--request", request)]


def decisions(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["decisions"]
    answers: list[dict[str, object]] = printed["decisions"]
    return answers


def test_json_tells_each_decision_in_order(six: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["plan", "--topology", six, *asks("200", "30:8", "100", "300"), "--json"])

    assert status == 0
    assert decisions(capsys) == [
        {"request": {"cores": 200, "blocks": 0}, "evaluator": "link", "gpus": [4, 5]},
        {"request": {"cores": 30, "blocks": 8}, "evaluator": "share", "gpus": [0]},
        {"request": {"cores": 100, "blocks": 0}, "evaluator": "fragment", "gpus": [1]},
        {
            "request": {"cores": 300, "blocks": 0},
            "refused": "no free GPU: 3 whole GPUs asked; 2 of 6 are free",
        },
    ]


def test_a_refused_request_takes_nothing_from_the_next(
    six: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(["plan", "--topology", six, *asks("700", "150", "0", "30", "600"), "--json"])

    assert status == 0
    *refused, last = decisions(capsys)
    assert [str(answer["refused"]).split(":")[0] for answer in refused] == [
        "larger than any GPU here",
        "not a valid request",
        "not a valid request",
        "a share of a GPU needs memory",
    ]
    assert last["gpus"] == [0, 1, 2, 3, 4, 5]


def test_occupied_gpus_are_respected(six: str, capsys: pytest.CaptureFixture[str]) -> None:
    held = ["--occupied", "0=30:8", "--occupied", "0=20", "--occupied", "4=100"]

    run(["plan", "--topology", six, *held, *asks("50:56", "50:56", "1:64", "100"), "--json"])

    assert [answer["gpus"] for answer in decisions(capsys)] == [[0], [1], [2], [3]]


def test_memory_is_that_of_each_gpu(six: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", "--topology", six, "--memory", "1GiB", *asks("30:4", "30:5", "100:5"), "--json"])

    first, second, third = decisions(capsys)
    assert first["gpus"] == [0]
    assert "the largest GPU has 4 blocks" in str(second["refused"])
    assert "1 whole GPU with 5 blocks asked; this machine has 0" in str(third["refused"])


def test_the_table_says_who_got_what_and_why(six: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--topology", six, *asks("200", "30:8", "150", "1:1", "100")]) == 0

    table = " ".join(capsys.readouterr().out.split())
    assert "6 GPUs of 16 GiB" in table
    assert "200 cores whole GPUs 4, 5 best linked set: PIX" in table
    assert "30 cores share 0 a free GPU, since no GPU in use had room" in table
    assert "1 core share 0" in table
    assert "1 block " in table
    assert "100 cores whole GPU 1 keeps linked GPUs together" in table
    assert "150 cores refused - not a valid request: 150 cores asked" in table


BAD_ARGUMENTS = {
    "no number": (["--request", "abc"], "--request abc: expected CORES"),
    "negative": (["--request", "-5"], "--request -5: expected CORES"),
    "bad blocks": (["--request", "30:x"], "--request 30:x: expected CORES"),
    "exponent": (["--request", "1e9"], "--request 1e9: expected CORES"),
    "empty": (["--request", ""], "expected CORES or CORES:BLOCKS"),
    "blocks missing": (["--request", "30:"], "--request 30:: expected CORES"),
    "other digits": (["--request", "٣٠"], "expected CORES"),
    "too many digits": (["--request", "9" * 5000], "expected CORES"),
    "no request": ([], "--request"),
    "unknown GPU": (
        ["--request", "100", "--occupied", "6=10"],
        "no GPU 6: the topology has 6 GPUs",
    ),
    "no GPU named": (["--request", "100", "--occupied", "50"], "expected GPU=CORES"),
    "two values": (["--request", "100", "--occupied", "1=2=3"], "expected GPU=CORES"),
    "nothing held": (["--request", "100", "--occupied", "1=0:4"], "1 to 100 of a GPU"),
    "more than a GPU": (["--request", "100", "--occupied", "1=200"], "1 to 100 of a GPU"),
    "more than is left": (
        ["--request", "100", "--occupied", "1=60", "--occupied", "1=60"],
        "GPU 1 has only 40 cores left",
    ),
    "whole and shared": (
        ["--request", "100", "--occupied", "1=100", "--occupied", "1=1"],
        "GPU 1 has only 0 cores left",
    ),
    "shared and whole": (
        ["--request", "100", "--occupied", "1=1", "--occupied", "1=100"],
        "GPU 1 has only 99 cores left",
    ),
    "more memory than there is": (
        ["--request", "100", "--occupied", "1=10:65"],
        "GPU 1 has only 64 blocks left",
    ),
    "bad memory": (["--request", "100", "--memory", "16GB"], "--memory: '16GB' is not a size"),
    "tiny memory": (["--request", "100", "--memory", "16"], "less than one memory block"),
    "unknown option": (["--request", "100", "--colour"], "No such option"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments_are_one_line_and_exit_status_2(
    case: str, six: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, cause = BAD_ARGUMENTS[case]

    status = run(["plan", "--topology", six, *arguments])

    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert cause in err


BAD_TOPOLOGIES = {
    "empty": b"",
    "binary": b"\x7fELF\x00\xff\xfe",
    "truncated": SIX.rsplit("\n", 2)[0].encode(),
    "contradictory": SIX.replace("GPU1 PIX", "GPU1 PHB").encode(),
    "another file": b"apiVersion: v1\nkind: Pod\n",
}


@pytest.mark.parametrize("case", BAD_TOPOLOGIES)
def test_a_bad_topology_is_one_line_that_names_the_file(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "topo.txt"
    path.write_bytes(BAD_TOPOLOGIES[case])

    status = run(["plan", "--topology", str(path), "--request", "100"])

    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"gpumanager: {path}:")


def test_a_missing_topology_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["plan", "--topology", str(tmp_path / "absent"), "--request", "100"])

    assert status == 2
    assert "absent: cannot be read: No such file or directory" in capsys.readouterr().err


def plan_of_standard_input(text: bytes) -> subprocess.CompletedProcess[bytes]:
    program = "from gpumanager.cli import main; main()"
    arguments = ["plan", "--topology", "-", "--request", "100", "--json"]
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=text,
        capture_output=True,
        timeout=300,
        check=False,
    )


def test_standard_input_is_read() -> None:
    done = plan_of_standard_input(SIX.encode())

    assert done.returncode == 0
    assert json.loads(done.stdout)["decisions"][0]["gpus"] == [4]


def test_bad_standard_input_is_named_with_its_line() -> None:
    done = plan_of_standard_input(SIX.replace("GPU1 PIX", "GPU1 PHB").encode())

    assert done.returncode == 2
    assert done.stderr.startswith(b"gpumanager: standard input:3: ")
