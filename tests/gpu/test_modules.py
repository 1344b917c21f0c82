"""Nodes that have started without the driver's modules or device nodes."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from gpumanager.gpu.kernel_modules import LOADERS, HostKernel, load_modules, parse_majors

NVIDIA_MODPROBE, MODPROBE = LOADERS


@dataclass
class PlayedKernel:
    """brings: names that appear in /dev, or modules that get a major number, by each command."""

    devices: set[str] = field(default_factory=set)
    loaded: dict[str, int] = field(default_factory=dict)
    brings: Mapping[Sequence[str], Mapping[str, int | None]] = field(default_factory=dict)
    may_make: bool = True
    ran: list[Sequence[str]] = field(default_factory=list)
    made: list[tuple[str, int, int]] = field(default_factory=list)

    def present(self) -> frozenset[str]:
        return frozenset(self.devices)

    def majors(self) -> Mapping[str, int]:
        return self.loaded

    def minors(self) -> tuple[int, ...]:
        return (0, 1)

    def run(self, command: Sequence[str]) -> str | None:
        self.ran.append(command)
        if command not in self.brings:
            return "No such file or directory"
        for name, major in self.brings[command].items():
            if major is None:
                self.devices.add(name)
            else:
                self.loaded[name] = major
        return None

    def make(self, *node: Any) -> str | None:
        if not self.may_make:
            return "Operation not permitted"
        self.made.append(node)
        self.devices.add(node[0])
        return None


ALL = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"}


UVM = ("nvidia-uvm", 511, 0)
LOADED = {"nvidia": 195, "nvidia-uvm": 511}
FRONTEND = {"nvidia-frontend": 195, "nvidia-uvm": 511}


@pytest.mark.parametrize(
    ("kernel", "ran", "made"),
    [
        pytest.param(PlayedKernel({"nvidiactl", "nvidia-uvm"}), [], set(),
                     id="nothing is run where the nodes are there"),
        pytest.param(PlayedKernel({"nvidiactl"}, brings={NVIDIA_MODPROBE: {"nvidia-uvm": None}}),
                     [NVIDIA_MODPROBE], set(), id="the driver's own loader may be enough"),
        pytest.param(PlayedKernel(brings={MODPROBE: LOADED}), [NVIDIA_MODPROBE, MODPROBE],
                     {("nvidiactl", 195, 255), ("nvidia0", 195, 0), ("nvidia1", 195, 1), UVM,
                      ("nvidia-uvm-tools", 511, 1)},
                     id="modprobe loads, and nodes are made by the numbers that the kernel gave"),
        pytest.param(PlayedKernel(ALL - {"nvidia-uvm"}, FRONTEND),
                     [NVIDIA_MODPROBE, MODPROBE], {UVM},
                     id="a node that is there is not made again"),
    ],
)  # fmt: skip
def test_device_nodes_are_had_with_as_little_as_it_takes(
    kernel: PlayedKernel, ran: list[Sequence[str]], made: set[tuple[str, int, int]]
) -> None:
    assert load_modules(cast("HostKernel", kernel)) == ()
    assert kernel.ran == ran
    assert (set(kernel.made), len(kernel.made)) == (made, len(made))


@pytest.mark.parametrize(
    "kernel",
    [PlayedKernel(), PlayedKernel(loaded={"nvidia": 195, "nvidia-uvm": 511}, may_make=False)],
    ids=["no driver", "not permitted"],
)
def test_what_cannot_be_had_is_named_and_nothing_is_raised(
    kernel: PlayedKernel, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_modules(cast("HostKernel", kernel)) == ("nvidiactl", "nvidia-uvm")
    assert "modprobe -va nvidia-uvm nvidia: No such file or directory" in caplog.text


def test_major_numbers_are_those_of_character_devices() -> None:
    text = "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n  8 nvidia\n"

    assert parse_majors(text) == {"mem": 1, "nvidia": 195, "nvidia-uvm": 510}


def test_the_host_s_own_files_are_read(tmp_path: Path) -> None:
    kernel = HostKernel(tmp_path / "dev", proc=tmp_path)
    for minor, name in ((1, "a"), (0, "b")):
        gpu = tmp_path / "driver/nvidia/gpus" / name
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t T4\nDevice Minor: \t {minor}\n")

    assert kernel.minors() == (0, 1)
    assert kernel.majors() == {}
    assert kernel.present() == frozenset()


def test_a_command_s_failure_is_told_in_its_own_words(tmp_path: Path) -> None:
    kernel = HostKernel(tmp_path)

    assert kernel.run(("true",)) is None
    assert kernel.run(("sh", "-c", "echo no such module >&2; exit 1")) == "no such module"
    assert kernel.run(("false",)) == "status 1"
    assert kernel.run((str(tmp_path / "nowhere"),)) == "No such file or directory"


def test_a_node_is_a_character_device_for_everybody(tmp_path: Path) -> None:
    kernel = HostKernel(tmp_path)
    if kernel.make("nvidiactl", 195, 255) is not None:
        pytest.skip("device nodes cannot be made here: needs root")

    status = (tmp_path / "nvidiactl").stat()
    assert stat.S_ISCHR(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o666
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (195, 255)
    assert kernel.make("nvidiactl", 195, 255) == "File exists"
