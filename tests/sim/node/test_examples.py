"""Every example, run as a user runs it: what its comment promises is what happens."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from gpumanager.sim.container.process import namespaces_available, own_environment
from gpumanager.sim.machines import load_machine
from gpumanager.units import GIB, MIB
from tests import ROOT
from tests.sim.host_watch import HostWatch
from tests.waiting import has_ended, until

EXAMPLES = ROOT / "examples"
SECONDS = 600
CODE_PAGE = 2 * MIB
"""What a small module takes of a simulated GPU, beside the model's own context-memory: drivers
take pages, and it is the only one in its."""
SHARE_POINTS = 5.0
"""How far from its promise a share may be in this first cut."""

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]

Row = Mapping[str, Any]
NONE: Mapping[str, float] = MappingProxyType({})


def simulate(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpumanager", "simulate", *map(str, words)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=SECONDS, env=own_environment()
    )


def run_example(
    *names: str,
    machine: str = "dgx-a100",
    asked: Mapping[str, float] = NONE,
    ceilings: Mapping[str, float] = NONE,
) -> dict[str, Row]:
    """The containers of the examples by `pod/container`; what holds for all of them is checked.

    asked: percent of a GPU that a pod's program has work for, where that is less than its promise.
    ceilings: percent that a pod may burst to.
    """
    files = [EXAMPLES / f"{name}.yaml" for name in names]
    with HostWatch() as host:
        finished = simulate("--machine", machine, "--json", *files)
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert report["machine"] == machine
    for row in report["containers"]:
        pod = row["pod"].removeprefix("default/")
        check_limits(row, asked.get(pod), ceilings.get(pod, 0), host)
    return {
        f"{row['pod'].removeprefix('default/')}/{row['container']}": row
        for row in report["containers"]
    }


def check_limits(row: Row, asked: float | None, ceiling: float, host: HostWatch) -> None:
    """Never a byte over the limit, never far from the share, never neither run nor refused.

    The clock is the real one: a share may be short where the machine delayed a launch or a wake-up,
    and never too large.
    """
    assert row["memory_peak_bytes"] <= row["memory_limit_bytes"], row
    assert (row["exit_code"] is None) == (row["refused"] is not None), row
    if row["share_achieved_percent"] is not None:
        due = row["share_target_percent"] if asked is None else asked
        most = max(due, ceiling)
        assert row["share_achieved_percent"] <= most + SHARE_POINTS, row
        host.expect(row, holds=due - SHARE_POINTS <= row["share_achieved_percent"])


def test_half_a_gpu_gets_half_of_its_time() -> None:
    row = run_example("half-a-gpu")["half-a-gpu/main"]

    assert (row["exit_code"], len(row["gpus"])) == (0, 1)
    assert row["memory_limit_bytes"] == 2 * GIB
    assert row["memory_peak_bytes"] == GIB + 424 * MIB + CODE_PAGE
    assert row["share_achieved_percent"] is not None


def test_two_containers_have_limits_of_their_own() -> None:
    rows = run_example("two-containers", machine="t4x4")

    limits = {name: row["memory_limit_bytes"] for name, row in rows.items()}
    assert limits["two-containers/small"] == GIB
    assert limits["two-containers/large"] == 4 * GIB
    assert all(row["exit_code"] == 0 for row in rows.values())
    assert rows["two-containers/large"]["memory_peak_bytes"] == 3 * GIB + 104 * MIB + CODE_PAGE


def test_two_pods_share_one_gpu_as_promised() -> None:
    rows = run_example("thirty-and-sixty")

    thirty, sixty = rows["thirty/main"], rows["sixty/main"]
    assert thirty["gpus"] == sixty["gpus"]
    assert thirty["share_achieved_percent"] is not None
    assert sixty["share_achieved_percent"] is not None


def test_bursts_find_their_part_of_the_gpu_beside_a_busy_neighbour() -> None:
    rows = run_example("bursts-beside-training", machine="single", asked={"answers": 20})

    answers, training = rows["answers/main"], rows["training/main"]
    assert answers["gpus"] == training["gpus"]
    assert (answers["exit_code"], training["exit_code"]) == (0, 0)
    assert answers["share_achieved_percent"] is not None
    assert training["share_achieved_percent"] is not None


def test_greed_is_refused_at_the_limit_and_lives_on() -> None:
    row = run_example("greedy-memory", machine="single")["greedy-memory/main"]

    assert row["memory_peak_bytes"] == row["memory_limit_bytes"] == GIB
    assert row["memory_denied"] > 0
    assert row["exit_code"] == 0


def test_four_gpus_are_the_best_linked_ones() -> None:
    row = run_example("four-linked-gpus", machine="two-socket-pcie-8")["four-linked-gpus/main"]

    assert (row["exit_code"], len(row["gpus"]), row["cores"]) == (0, 4, 400)
    assert row["memory_limit_bytes"] == 4 * 24 * GIB


def test_each_impossible_request_says_why() -> None:
    rows = run_example("impossible")

    reasons = {name.removesuffix("/main"): row["refused"] for name, row in rows.items()}
    assert "Requested: 3200, Available: 800" in reasons["too-many-gpus"]
    assert "multiples of 100" in reasons["one-and-a-half-gpus"]
    assert "larger than any GPU here" in reasons["more-than-a-card"]
    assert "a share of a GPU needs memory" in reasons["no-memory"]


def test_unmodified_third_party_clients_live_within_the_limit() -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

    rows = run_example("third-party", machine="t4x4")

    assert [row["exit_code"] for row in rows.values()] == [0, 0]
    assert rows["third-party/cuda-bindings"]["memory_peak_bytes"] == 512 * MIB
    assert rows["third-party/cuda-bindings"]["memory_denied"] == 1


def test_what_is_idle_is_lent_and_comes_back() -> None:
    with HostWatch() as host:
        rows = run_example(
            "idle-share-is-lent", machine="single", asked={"lender": 10}, ceilings={"borrower": 90}
        )

    borrower, lender = rows["borrower/main"], rows["lender/main"]
    assert borrower["gpus"] == lender["gpus"]
    assert borrower["share_target_percent"] == 30
    assert lender["share_achieved_percent"] is not None
    host.expect(borrower, holds=borrower["share_achieved_percent"] > 30 + SHARE_POINTS)


def test_a_notebook_holds_memory_and_needs_no_time() -> None:
    row = run_example("memory-only", machine="single")["notebook/main"]

    assert (row["exit_code"], row["cores"]) == (0, 1)
    assert row["memory_limit_bytes"] == 4 * GIB
    assert row["memory_peak_bytes"] > 3 * GIB


def test_a_whole_gpu_has_no_limit_but_its_own() -> None:
    row = run_example("whole-gpu", machine="two-socket-pcie-8")["whole-gpu/main"]

    assert (row["exit_code"], len(row["gpus"])) == (0, 1)
    assert row["memory_limit_bytes"] == 24 * GIB


@pytest.mark.parametrize(
    ("name", "machine", "bond"),
    [("nvlink-pair", "v100x4-nvlink", "NV2"), ("one-numa-node", "two-socket-pcie-8", "PIX")],
)
def test_two_gpus_are_a_pair(name: str, machine: str, bond: str) -> None:
    row = run_example(name, machine=machine)[f"{name}/main"]

    topology = load_machine(machine).topology
    one, other = (gpu for gpu in topology.gpus if gpu.uuid in row["gpus"])
    assert str(topology.bonds[one.index][other.index]) == bond
    assert one.numa_node == other.numa_node


def test_all_examples_fit_the_nodes_of_the_demo_and_end_with_a_table() -> None:
    command = ["make", "-n", "demo", "BIN="]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    first, claims = re.findall(r"/gpumanager simulate (examples/.*)", said.stdout)
    with_claims = simulate(*(ROOT / word for word in claims.split()))
    finished = simulate(*(ROOT / word for word in first.split()))

    assert with_claims.returncode == 0, with_claims.stderr
    assert finished.returncode == 0, finished.stderr
    for words in ("half-a-gpu", "of 60 %", "refused: ", "Simulated GPUs, dgx-a100"):
        assert words in finished.stdout
    for words in ("agent registered", "admitted", "CUDA_ERROR_OUT_OF_MEMORY"):
        assert words in finished.stderr


@pytest.mark.parametrize("machine", ["two-socket-pcie-8", "v100x4-nvlink"])
def test_all_examples_of_another_machine_fit_it_together(machine: str) -> None:
    named = [one for one in EXAMPLES.glob("*.yaml") if f"--machine {machine} " in one.read_text()]

    rows = run_example(*(one.stem for one in named), machine=machine)

    assert [row["exit_code"] for row in rows.values()] == [0] * len(named)


def test_a_failing_command_is_a_result_and_no_error(tmp_path: Path) -> None:
    rows = (EXAMPLES / "half-a-gpu.yaml").read_text().replace("cuda-play", "no-such-program")
    (tmp_path / "pod.yaml").write_text(rows)

    finished = simulate("--machine", "single", "--json", tmp_path / "pod.yaml")

    assert finished.returncode == 0
    assert json.loads(finished.stdout)["containers"][0]["exit_code"] == 127
    assert "executable file not found in $PATH" in finished.stderr


def test_the_driver_of_a_simulation_speaks_the_version_that_is_asked_for(tmp_path: Path) -> None:
    ask = (
        "import ctypes; version = ctypes.c_int();"
        "ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(version));"
        "print('speaks', version.value)"
    )
    described = yaml.safe_load((EXAMPLES / "half-a-gpu.yaml").read_text())
    described["spec"]["containers"][0] |= {"command": [sys.executable, "-c", ask]}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(described))

    finished = simulate("--machine", "single", "--cuda-version", "13.4", tmp_path / "pod.yaml")

    assert "speaks 13040" in finished.stderr


def test_time_that_runs_out_is_status_1_and_names_what_still_ran(tmp_path: Path) -> None:
    """However slow the machine is: more time where the container had not begun in it."""
    described = yaml.safe_load((EXAMPLES / "half-a-gpu.yaml").read_text())
    described["spec"]["containers"][0] |= {"command": ["sleep", "600"]}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(described))

    for seconds in (3, 10, 30):
        finished = simulate("--machine", "single", "--timeout", str(seconds), tmp_path / "pod.yaml")
        last = finished.stderr.splitlines()[-1]
        assert finished.returncode == 1
        if "no container was running yet" not in last:
            break

    said = f"gpumanager: not finished after {seconds} s: still running: half-a-gpu/main"
    assert last.startswith(said)


@pytest.mark.parametrize("times", [1, 5], ids=["asked-once", "asked-impatiently"])
async def test_an_ended_simulation_leaves_nothing_behind(times: int) -> None:
    """SIGTERM in the middle: no process, no file stays."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", "simulate", "--machine", "single"),
        str(EXAMPLES / "half-a-gpu.yaml"),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env=own_environment(),
    )
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while b"holding" not in await process.stderr.readline():
            pass
        below = descendants(process.pid)
        files = disk_of(below)
        for _ in range(times):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)
        rest = await process.stderr.read()
        assert await process.wait() == 130

    assert len(below) > 1
    await until(lambda: all(has_ended(pid) for pid in below))
    assert not files.exists()
    assert rest.decode().splitlines()[-1] == "gpumanager: interrupted"
    assert b"Traceback" not in rest


async def test_a_killed_simulation_leaves_no_agent_behind() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", "simulate", "--machine", "single"),
        str(EXAMPLES / "half-a-gpu.yaml"),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env=own_environment() | {"TMPDIR": "/tmp"},
    )
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while b"holding" not in await process.stderr.readline():
            pass
        below = descendants(process.pid)
        process.kill()
        await process.wait()

    await until(lambda: all(has_ended(pid) for pid in below))


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    found: set[int] = set()
    pending = [pid]
    while pending:
        pending += (below := children.get(pending.pop(), []))
        found.update(below)
    return found


def disk_of(processes: set[int]) -> Path:
    """The directory of the simulated node that one of them, its agent, was told of."""
    for pid in processes:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "--checkpoint-path" in words:
            return Path(words[words.index("--checkpoint-path") + 1]).parent
    raise AssertionError("no agent among the processes")
