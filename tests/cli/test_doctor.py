"""`gpumanager doctor`, where there is nothing and where there is all: it changes nothing."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli import agent, doctor, run
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from tests.cli.commands import doctor_of, flags_of
from tests.volume.driver_host import VERSION, FakeHost, Parts


def verdicts(findings: list[dict[str, str]]) -> dict[str, str]:
    return {row["part"]: row["verdict"] for row in findings}


def test_where_there_is_nothing_it_says_so_fails_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--json", *flags_of(tmp_path)]) == 1

    said = json.loads(capsys.readouterr().out)
    found = verdicts(said["findings"])
    wrong = {part for part, verdict in found.items() if verdict == "wrong"}
    assert {"driver libraries", "device nodes", "kubelet", "pods"} <= wrong
    assert said["wrong"] == [one["verdict"] for one in said["findings"]].count("wrong")
    assert all(one["advice"] for one in said["findings"] if one["verdict"] != "well")
    assert list(tmp_path.iterdir()) == []


def test_the_table_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *flags_of(tmp_path)]) == 1

    printed = " ".join(capsys.readouterr().out.split())
    assert "→ run `nvidia-modprobe -u -c 0` on the node" in printed
    assert "pods on this node would not get what they ask for" in printed


def default_runtime_is_nvidias(directory: Path) -> None:
    settings = directory / "root/etc/docker/daemon.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"default-runtime": "nvidia"}')


def journal_is_broken(directory: Path) -> None:
    (directory / "checkpoint").mkdir()
    (directory / "checkpoint" / "allocations.json").write_text("half a jour")


def directory_is_a_file(directory: Path) -> None:
    (directory / "vm").write_text("a file")


@pytest.mark.parametrize(
    ("harm", "part", "verdict"),
    [
        (default_runtime_is_nvidias, "NVIDIA's runtime", "note"),
        (journal_is_broken, "journal", "wrong"),
        (directory_is_a_file, "allocations", "wrong"),
    ],
)
def test_what_the_node_s_files_say_is_a_finding(
    harm: Callable[[Path], None],
    part: str,
    verdict: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    harm(tmp_path)

    run(["doctor", "--json", *flags_of(tmp_path)])

    assert verdicts(json.loads(capsys.readouterr().out)["findings"])[part] == verdict


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


def test_it_takes_every_flag_of_the_agent() -> None:
    def names(parameters: list[Any]) -> Iterator[str]:
        return (name for one in parameters for name in one.opts)

    assert set(names(agent.command.params)) <= set(names(doctor.command.params))


@pytest.mark.namespaces
async def test_nothing_is_wrong_beside_an_agent_that_runs() -> None:
    async with SimulatedNode(load_machine("t4x4")) as node:
        status, said = await doctor_of(node)

    found = verdicts(said["findings"])
    assert status == 0, said
    assert {found[part] for part in ("driver", "GPUs", "kubelet", "agent", "journal")} == {"well"}
    assert {found[part] for part in ("unlimited libraries", "pageable memory (HMM)")} == {"well"}


@pytest.mark.namespaces
async def test_a_machine_whose_gpus_share_its_memory_and_reach_all_of_it_is_noted() -> None:
    machine = load_machine("single")
    behaviour = replace(machine.driver, hmm=True, hides_memory=True)
    async with SimulatedNode(replace(machine, driver=behaviour)) as node:
        status, said = await doctor_of(node)

    rows = said["findings"]
    notes = {row["part"]: row["advice"] for row in rows if row["verdict"] == "note"}
    assert status == 0, said
    assert "1 x NVIDIA GeForce RTX 3090, 23.25 GiB" in {row["found"] for row in rows}
    assert "uvm_disable_hmm=1" in notes["pageable memory (HMM)"]
    assert "--reserved-memory" in notes["GPUs"]
