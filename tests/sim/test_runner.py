"""The environment and the mounts of a container, as a kubelet and a runtime would set them."""

import os

import pytest

from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.kubelet.kubelet import RunOptions, merge
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.runner import container_spec
from vcuda_shim import PROGRAMS

MAIN = ContainerManifest(
    "main",
    ContainerKind.APP,
    ("train", "--fast"),
    environment=(("LD_LIBRARY_PATH", "/mine"), ("MODE", "x")),
    directory="/srv",
)
POD = Pod("default", "trainer", (MAIN,))


def test_the_pods_own_variables_count_last_as_in_a_kubelet() -> None:
    options = RunOptions(environment={"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64", "PLUGIN": "y"})

    environment = container_spec(POD, MAIN, options).environment

    assert environment["LD_LIBRARY_PATH"] == "/mine"
    assert (environment["PLUGIN"], environment["MODE"]) == ("y", "x")
    assert environment["HOSTNAME"] == "trainer"


def test_our_programs_come_first_on_the_path_and_the_hosts_stay() -> None:
    path = container_spec(POD, MAIN, RunOptions()).environment["PATH"].split(os.pathsep)

    assert path[0] == str(PROGRAMS)
    assert path[2:] == os.environ["PATH"].split(os.pathsep)


def test_the_hosts_own_variables_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_DEV", "/somewhere")

    assert "GPUSIM_DEV" not in container_spec(POD, MAIN, RunOptions()).environment


def test_devices_and_mounts_of_the_answer_are_applied() -> None:
    answer = pb.ContainerAllocateResponse(
        devices=[pb.DeviceSpec(host_path="/n/dev/nvidia3", container_path="/dev/nvidia3")],
        mounts=[pb.Mount(host_path="/n/v", container_path="/usr/local/nvidia", read_only=True)],
    )

    spec = container_spec(POD, MAIN, merge([answer, pb.ContainerAllocateResponse()]))

    assert spec.devices == (BindMount("/n/dev/nvidia3", "/dev/nvidia3"),)
    assert spec.mounts == (BindMount("/n/v", "/usr/local/nvidia", read_only=True),)
    assert (spec.command, spec.directory) == (("train", "--fast"), "/srv")


def test_of_two_answers_that_name_one_thing_the_first_counts() -> None:
    first = pb.ContainerAllocateResponse(envs={"A": "1"})
    second = pb.ContainerAllocateResponse(envs={"A": "2", "B": "2"})

    assert merge([first, second]).environment == {"A": "1", "B": "2"}
