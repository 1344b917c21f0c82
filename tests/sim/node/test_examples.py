"""Every example, run as a user runs it: what its comment promises is what happens.

As `make demo` does, one node runs all examples of its machine.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumanager.sim.container.process import own_environment
from gpumanager.sim.machines import load_machine
from gpumanager.units import GIB, MIB
from tests import ROOT
from tests.sim.host_watch import HostWatch

pytestmark = pytest.mark.namespaces

EXAMPLES = ROOT / "examples"
SECONDS = 600
CONTEXT, CODE_PAGE = 424 * MIB, 2 * MIB
"""What the model's driver takes for a context, and what a small module takes beside it: drivers
take pages, and it is the only one in its."""
SHARE_POINTS = 5.0
"""How far from its promise a share may be on the real clock."""
ASKED = {"answers": 20, "lender": 10}
"""Percent of a GPU that a program has work for, where that is less than its promise."""
CEILINGS = {"borrower": 90}
"""Percent that a pod may burst to."""

Row = Mapping[str, Any]


def commands_of_the_demo() -> list[list[str]]:
    """The examples that each `simulate` of `make demo` names."""
    words = ["make", "-n", "demo", "BIN="]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return [row.split() for row in re.findall(r"/gpumanager simulate (examples/.*)", said.stdout)]


class Played:
    """The containers of examples by `pod/container`, as one node of a machine ran them."""

    def __init__(self, machine: str, files: list[Path]) -> None:
        command = [sys.executable, "-m", "gpumanager", "simulate", "--machine", machine, "--json"]
        with HostWatch() as self.host:
            finished = subprocess.run(
                [*command, *map(str, files)],
                check=False,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                env=own_environment(),
            )
        assert finished.returncode == 0, finished.stderr
        report = json.loads(finished.stdout)
        assert report["machine"] == machine
        self.progress = finished.stderr
        self.rows: dict[str, Row] = {
            f"{row['pod'].removeprefix('default/')}/{row['container']}": row
            for row in report["containers"]
        }


@pytest.fixture(scope="module")
def demo() -> Played:
    return Played("dgx-a100", [ROOT / name for name in commands_of_the_demo()[0]])


def check_limits(row: Row, host: HostWatch) -> None:
    """Never a byte over the limit, never far from the share, never neither run nor refused.

    The clock is the real one: a share may be short where the machine delayed a launch or a wake-up,
    and never too large.
    """
    pod = row["pod"].removeprefix("default/")
    assert row["memory_peak_bytes"] <= row["memory_limit_bytes"], row
    assert (row["exit_code"] is None) == (row["refused"] is not None), row
    if row["share_achieved_percent"] is not None:
        due: float = ASKED.get(pod) or row["share_target_percent"]
        assert row["share_achieved_percent"] <= max(due, CEILINGS.get(pod, 0)) + SHARE_POINTS, row
        host.expect(row, holds=due - SHARE_POINTS <= row["share_achieved_percent"])


def test_the_demo_has_all_examples() -> None:
    of_other_machines = {path for path in EXAMPLES.glob("*.yaml") if machine_of(path)}
    named = {ROOT / name for words in commands_of_the_demo() for name in words}

    assert named | of_other_machines == {*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("claims/*.yaml")}


def machine_of(example: Path) -> str | None:
    found = re.search(r"--machine (\S+) ", example.read_text())
    return found and found[1]


def test_no_container_of_the_demo_exceeds_its_limits(demo: Played) -> None:
    for row in demo.rows.values():
        check_limits(row, demo.host)
    for words in ("agent registered", "admitted", "CUDA_ERROR_OUT_OF_MEMORY"):
        assert words in demo.progress


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("half-a-gpu/main", 8),
        ("two-containers/small", 4),
        ("two-containers/large", 16),
        ("greedy-memory/main", 4),
        ("notebook/main", 16),
    ],
)
def test_a_container_has_the_memory_that_it_asked_for(demo: Played, name: str, blocks: int) -> None:
    row = demo.rows[name]

    assert (row["exit_code"], len(row["gpus"])) == (0, 1)
    assert row["memory_limit_bytes"] == blocks * 256 * MIB


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("half-a-gpu/main", GIB + CONTEXT + CODE_PAGE),
        ("two-containers/large", 3 * GIB + CONTEXT + CODE_PAGE),
        ("greedy-memory/main", GIB),
    ],
)
def test_what_a_container_held_at_most_is_shown(demo: Played, name: str, held: int) -> None:
    assert demo.rows[name]["memory_peak_bytes"] == held


@pytest.mark.parametrize(
    ("one", "other"),
    [("thirty", "sixty"), ("answers", "training"), ("borrower", "lender")],
)
def test_two_pods_share_one_gpu(demo: Played, one: str, other: str) -> None:
    rows = [demo.rows[f"{name}/main"] for name in (one, other)]

    assert rows[0]["gpus"] == rows[1]["gpus"]
    assert all(row["exit_code"] == 0 for row in rows)
    assert None not in [row["share_achieved_percent"] for row in rows]


def test_a_greedy_program_is_refused_at_the_limit_and_goes_on(demo: Played) -> None:
    row = demo.rows["greedy-memory/main"]

    assert row["memory_denied"] > 0
    assert row["exit_code"] == 0


def test_each_impossible_request_says_why(demo: Played) -> None:
    reasons = {name.removesuffix("/main"): row["refused"] for name, row in demo.rows.items()}

    assert "Requested: 3200, Available: " in reasons["too-many-gpus"]
    assert "multiples of 100" in reasons["one-and-a-half-gpus"]
    assert "larger than any GPU here" in reasons["more-than-a-card"]
    assert "a share of a GPU needs memory" in reasons["no-memory"]


def test_unmodified_third_party_clients_live_within_the_limit(demo: Played) -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

    rows = [row for name, row in demo.rows.items() if name.startswith("third-party/")]

    assert [row["exit_code"] for row in rows] == [0, 0]
    assert all(row["memory_denied"] == 1 for row in rows if "bindings" in row["container"])


def test_idle_share_is_lent(demo: Played) -> None:
    borrower = demo.rows["borrower/main"]

    assert borrower["share_target_percent"] == 30
    demo.host.expect(borrower, holds=borrower["share_achieved_percent"] > 30 + SHARE_POINTS)


def test_whole_gpus_of_a_machine_are_the_best_linked_ones() -> None:
    machine = "two-socket-pcie-8"
    played = Played(machine, [one for one in EXAMPLES.glob("*.yaml") if machine_of(one) == machine])

    for row in played.rows.values():
        check_limits(row, played.host)
    assert {
        name: (row["exit_code"], len(row["gpus"]), row["cores"], row["memory_limit_bytes"])
        for name, row in played.rows.items()
    } == {
        "four-linked-gpus/main": (0, 4, 400, 4 * 24 * GIB),
        "one-numa-node/main": (0, 2, 200, 2 * 24 * GIB),
        "whole-gpu/main": (0, 1, 100, 24 * GIB),
    }
    assert bond_of(machine, played.rows["one-numa-node/main"]) == "PIX"


def test_two_gpus_are_an_nvlink_pair() -> None:
    machine = "v100x4-nvlink"
    played = Played(machine, [EXAMPLES / "nvlink-pair.yaml"])

    assert played.rows["nvlink-pair/main"]["exit_code"] == 0
    assert bond_of(machine, played.rows["nvlink-pair/main"]) == "NV2"


def bond_of(machine: str, row: Row) -> str:
    """What links the two GPUs of a container, which lie at one NUMA node."""
    topology = load_machine(machine).topology
    one, other = (gpu for gpu in topology.gpus if gpu.uuid in row["gpus"])
    assert one.numa_node == other.numa_node
    return str(topology.bonds[one.index][other.index])
