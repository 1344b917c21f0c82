"""Which of the driver's libraries containers see, by their pods' NVIDIA_DRIVER_CAPABILITIES."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.sim import events, host
from gpumanager.sim.gpu import install_driver
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from tests.sim.node.test_node import container, pod
from tests.volume.driver_host import VERSION, Parts

GRAPHICS = f"libnvidia-glcore.so.{VERSION}"
LIST = ("sh", "-c", "ls /usr/local/nvidia/lib64 | grep -c glcore")


@pytest.mark.namespaces
@pytest.mark.parametrize("cdi", ["false", "true"])
async def test_a_share_without_graphics_in_its_capabilities_sees_no_opengl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cdi: str
) -> None:
    def with_graphics(root: Path, cuda_version: int) -> Path:
        folder = install_driver(root, cuda_version)
        library = Parts(tmp_path).library(GRAPHICS, soname=GRAPHICS)
        (folder / GRAPHICS).write_bytes(library.read_bytes())
        return folder

    monkeypatch.setattr(host, "install_driver", with_graphics)
    monkeypatch.setattr(host, "_SONAME", re.compile(r".*\.so(\..*)?"))
    said: dict[str, str] = {}

    def saw(event: events.Event) -> None:
        if isinstance(event, events.ContainerPrinted):
            said[event.pod.name] = event.line

    pods = [
        pod(replace(container(*LIST), environment=environment), name=name)
        for name, environment in {
            "silent": (),
            "drawing": (("NVIDIA_DRIVER_CAPABILITIES", "compute,graphics"),),
            "computing": (("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),),
        }.items()
    ]
    flags = {"device-plugin-cdi": cdi}
    async with SimulatedNode(load_machine("single"), agent_flags=flags, on_event=saw) as node:
        await node.run(pods)

    assert said == {"silent": "1", "drawing": "1", "computing": "0"}
