"""`gpumanager tree`: from a described machine, and clear words where there is none."""

import json
from pathlib import Path

import pytest

from gpumanager.cli import run

TOPOLOGIES = Path(__file__).parent.parent / "gpu/topologies"


@pytest.mark.parametrize("name", sorted(path.name for path in TOPOLOGIES.glob("*.txt")))
def test_every_gpu_of_a_machine_is_a_leaf(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(TOPOLOGIES / name)

    assert run(["tree", "--topology", path]) == 0
    shown = capsys.readouterr().out
    assert run(["tree", "--topology", path, "--json"]) == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]

    leaves = json.dumps(node).count('"numa_node"')
    assert [index for index in range(leaves) if f"GPU{index}  " not in shown] == []
    assert f"machine  {leaves} GPU" in shown


def test_nvlinks_are_told_by_island(capsys: pytest.CaptureFixture[str]) -> None:
    run(["tree", "--topology", str(TOPOLOGIES / "dgx-a100.txt"), "--memory", "40GiB"])

    shown = " ".join(capsys.readouterr().out.split())
    assert "GPU0, GPU1, GPU2, GPU3, GPU4, GPU5, GPU6, GPU7: 12 NVLinks between every pair" in shown
    assert "GPU0 40 GiB, NUMA 3" in shown  # the text names no product


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["--topology", "/no/such/file"], 2, "cannot be read"),
        (["--topology", str(TOPOLOGIES / "single.txt"), "--memory", "x"], 2, "--memory"),
        (["--agent", "http://127.0.0.1:1"], 1, "cannot ask the agent: Connection refused"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    arguments: list[str], status: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tree", *arguments]) == status

    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
