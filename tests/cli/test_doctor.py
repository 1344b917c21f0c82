"""`gpumanager doctor`, where there is nothing and where there is all: it changes nothing."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli import agent, doctor, run
from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from tests.volume.driver_host import VERSION, FakeHost, Parts

MISSING = namespaces_available()


def flags_of(directory: Path) -> list[str]:
    """Of an agent that has everything below a directory."""
    return [
        *("--driver-root", str(directory / "root")),
        *("--device-directory", str(directory / "dev")),
        *("--device-plugin-path", str(directory / "kubelet")),
        *("--pod-resources-socket", str(directory / "pod-resources.sock")),
        *("--container-runtime-endpoint", str(directory / "cri.sock")),
        *("--kubelet-endpoint", "http://127.0.0.1:1"),
        *("--virtual-manager-path", str(directory / "vm")),
        *("--checkpoint-path", str(directory / "checkpoint")),
        *("--volume-base", str(directory / "volumes")),
    ]


def verdicts(printed: str) -> dict[str, str]:
    return {row["part"]: row["verdict"] for row in json.loads(printed)["findings"]}


def test_where_there_is_nothing_it_says_so_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(["doctor", "--json", *flags_of(tmp_path)])

    printed = capsys.readouterr().out
    wrong = {part for part, verdict in verdicts(printed).items() if verdict == "wrong"}
    assert status == 1
    assert {"driver libraries", "device nodes", "kubelet", "pods"} <= wrong
    assert json.loads(printed)["wrong"] == len(
        [one for one in json.loads(printed)["findings"] if one["verdict"] == "wrong"]
    )
    assert all(one["advice"] for one in json.loads(printed)["findings"] if one["verdict"] != "well")


def test_it_changes_nothing(tmp_path: Path) -> None:
    run(["doctor", "--json", *flags_of(tmp_path)])

    assert list(tmp_path.iterdir()) == []


def test_a_default_runtime_that_gets_past_the_shims_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "root/etc/docker/daemon.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"default-runtime": "nvidia"}')

    run(["doctor", "--json", *flags_of(tmp_path)])

    assert verdicts(capsys.readouterr().out)["NVIDIA's runtime"] == "note"


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ([], "have OpenGL and Vulkan, EGL, whose"),
        (["--opencl-in-shares=true"], "have OpenGL and Vulkan, EGL, OpenCL, whose"),
    ],
)
def test_libraries_that_nothing_limits_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], names: str
) -> None:
    host = FakeHost(tmp_path / "root", Parts(tmp_path))
    host.install_driver()
    for name in ("libnvidia-glcore.so", "libnvidia-eglcore.so", "libnvidia-opencl.so"):
        host.install(host.parts.library(f"{name}.{VERSION}"))

    run(["doctor", "--json", *flags_of(tmp_path), *flags])

    rows = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [row["found"] for row in rows if row["part"] == "unlimited libraries"]
    assert names in found


def test_a_broken_journal_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "allocations.json").write_text("half a jour")

    run(["doctor", "--json", *flags_of(tmp_path)])

    assert verdicts(capsys.readouterr().out)["journal"] == "wrong"


def test_a_directory_that_cannot_be_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vm").write_text("a file")

    run(["doctor", "--json", *flags_of(tmp_path)])

    assert verdicts(capsys.readouterr().out)["allocations"] == "wrong"


def test_the_table_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["doctor", *flags_of(tmp_path)])

    printed = capsys.readouterr().out
    assert status == 1
    assert "→ run `nvidia-modprobe -u -c 0` on the node" in " ".join(printed.split())
    assert "pods on this node would not get what they ask for" in " ".join(printed.split())


def test_a_flag_that_no_agent_would_take_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--kubelet-endpoint", "ftp://here"]) == 2
    assert "not a kubelet endpoint" in capsys.readouterr().err


def test_it_takes_every_flag_of_the_agent() -> None:
    def names(parameters: list[Any]) -> Iterator[str]:
        return (name for one in parameters for name in one.opts)

    assert set(names(agent.command.params)) <= set(names(doctor.command.params))


async def asked_on(node: SimulatedNode, *words: str) -> tuple[int | None, str]:
    """The doctor's answer on this node, with the flags of its agent: status and JSON."""
    command = [
        "doctor" if w == "agent" else w for w in node.agent.command(node.kubelet.http.endpoint)
    ]
    asked = await asyncio.create_subprocess_exec(
        *command,
        "--json",
        *words,
        env=node.agent.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await asyncio.wait_for(asked.communicate(), 300)
    return asked.returncode, printed.decode()


@pytest.mark.namespaces
@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_nothing_is_wrong_beside_an_agent_that_runs() -> None:
    async with SimulatedNode(load_machine("t4x4")) as node:
        status, printed = await asked_on(node)

    found = verdicts(printed)
    assert status == 0, printed
    assert {found[part] for part in ("driver", "GPUs", "kubelet", "agent", "journal")} == {"well"}
    assert {found[part] for part in ("unlimited libraries", "pageable memory (HMM)")} == {"well"}


@pytest.mark.namespaces
@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_a_machine_whose_gpus_share_its_memory_and_reach_all_of_it_is_noted() -> None:
    machine = load_machine("single")
    behaviour = replace(machine.driver, hmm=True, hides_memory=True)
    async with SimulatedNode(replace(machine, driver=behaviour)) as node:
        status, printed = await asked_on(node)

    rows = json.loads(printed)["findings"]
    notes = {row["part"]: row["advice"] for row in rows if row["verdict"] == "note"}
    assert status == 0, printed
    assert "1 x NVIDIA GeForce RTX 3090, 23.25 GiB" in {row["found"] for row in rows}
    assert "uvm_disable_hmm=1" in notes["pageable memory (HMM)"]
    assert "--reserved-memory" in notes["GPUs"]
