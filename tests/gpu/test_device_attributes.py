"""Generation, PCIe root and CUDA of a node's GPUs."""

import threading
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from gpumanager.gpu import device_attributes as module
from gpumanager.gpu.device_attributes import (
    DeviceAttributes,
    cuda_version,
    device_attributes,
    pcie_root,
)
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.values import topology
from tests.deviceplugin.admission.admission_node import gpus

NODE = gpus(1)
(GPU,) = NODE.gpus


def sysfs(root: Path) -> Path:
    """One GPU behind a bridge of the host bridge pci0000:80."""
    real = root / "devices/pci0000:80/0000:80:02.0/0000:81:00.0"
    real.mkdir(parents=True)
    links = root / "bus/pci/devices"
    links.mkdir(parents=True)
    (links / "0000:81:00.0").symlink_to(real)
    return root


@pytest.mark.parametrize("bus_id", ["0000:81:00.0", "00000000:81:00.0"])
def test_the_pcie_root_is_the_host_bridge_that_sysfs_names(tmp_path: Path, bus_id: str) -> None:
    assert pcie_root(sysfs(tmp_path), replace(GPU, bus_id=bus_id)) == "pci0000:80"


def test_a_gpu_that_sysfs_does_not_have_has_no_root(tmp_path: Path) -> None:
    assert pcie_root(sysfs(tmp_path), GPU) == ""


@pytest.mark.parametrize(("number", "text"), [(12050, "12.5"), (13000, "13.0")])
async def test_what_the_driver_tells_is_told(
    number: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion", lambda: number)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "555.58.02")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda _: object())
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetArchitecture", lambda _: pynvml.NVML_DEVICE_ARCH_AMPERE
    )
    node = topology([replace(GPU, bus_id="0000:81:00.0")], [[None]])

    found = await device_attributes(NvmlService(), node, sysfs(tmp_path))

    assert found == DeviceAttributes(text, {GPU.uuid: "Ampere"}, {GPU.uuid: "pci0000:80"})
    assert await cuda_version(NvmlService()) == text


@pytest.mark.parametrize("hangs", [False, True], ids=["it fails", "it does not answer"])
async def test_a_driver_that_tells_nothing_is_not_waited_for(
    hangs: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()

    def loaded() -> None:
        if hangs:
            answer.wait(120)
        raise NvmlError("no driver")

    monkeypatch.setattr(module, "loaded_driver", loaded)

    assert await cuda_version(NvmlService(), 0.01) == ""
    assert await device_attributes(NvmlService(), NODE, sysfs(tmp_path), 0.01) == DeviceAttributes()
    answer.set()
