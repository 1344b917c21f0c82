"""`gpumanager tree`: from a described machine."""

import json

import pytest

from gpumanager.cli import run
from tests.cli.commands import TOPOLOGIES


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
