"""Discovery: what NVML says becomes a topology, and what it cannot say does no harm."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pynvml
import pytest

from gpumanager.gpu.nvml import DriverNvml, NvLinks, NvmlError, discover, driver
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology
from gpumanager.units import GIB, MIB, Bytes
from tests.gpu.nvml_answers import answers, refuse

KEPT = 64 * MIB
"""By the driver of the GPU in the fake library."""


def gpu(index: int, **known: int | None) -> Gpu:
    bus_id = f"00000000:{index + 1:02X}:00.0"
    return Gpu(index, index, GpuUUID(f"GPU-{index}"), bus_id, "T4", Bytes(GIB), **known)


@dataclass(frozen=True, slots=True)
class ToldNvml:
    """Answers what it was told."""

    gpus: tuple[Gpu, ...]
    levels: Mapping[frozenset[int], Level] = field(default_factory=dict)
    links: Mapping[int, NvLinks] = field(default_factory=dict)

    def count(self) -> int:
        return len(self.gpus)

    def gpu(self, index: int) -> Gpu:
        return self.gpus[index]

    def level(self, a: int, b: int) -> Level | None:
        return self.levels.get(frozenset({a, b}))

    def nvlinks(self, index: int) -> NvLinks:
        return self.links.get(index, NvLinks())


def discovered(nvml: ToldNvml) -> Topology:
    return discover(cast("DriverNvml", nvml))


LEVELS = {frozenset({0, 1}): Level.BOARD, frozenset({0, 2}): Level.PHB}
TO_OTHERS = {
    0: NvLinks(Counter({"00000000:02:00.0": 2, "00000000:03:00.0": 1})),
    1: NvLinks(Counter({"00000000:01:00.0": 2})),
    2: NvLinks(Counter({"00000000:01:00.0": 1})),
}
TO_SWITCHES = {0: NvLinks(switch=12), 1: NvLinks(switch=12), 2: NvLinks(switch=11)}
LOOSEST = Bond(Level.SYS)


@pytest.mark.parametrize(
    ("nvml", "bonds"),
    [
        pytest.param({"levels": LEVELS}, [Bond(Level.BOARD), Bond(Level.PHB), LOOSEST],
                     id="levels become bonds, a pair of which nothing is known the loosest"),
        pytest.param({"links": TO_OTHERS}, [Bond(Level.SYS, 2), Bond(Level.SYS, 1), LOOSEST],
                     id="direct NVLinks are counted for each pair"),
        pytest.param({"links": TO_SWITCHES}, [Bond(Level.SYS, count) for count in (12, 11, 11)],
                     id="links to switches join every pair by as many as both have"),
    ],
)  # fmt: skip
def test_what_nvml_tells_of_pairs_becomes_bonds(nvml: dict[str, Any], bonds: list[Bond]) -> None:
    told = ToldNvml((gpu(0), gpu(1), gpu(2)), **nvml)

    topology = discovered(told)

    assert topology.gpus == told.gpus
    assert [topology.bond(*pair) for pair in ((0, 1), (2, 0), (1, 2))] == bonds


@dataclass(frozen=True, slots=True)
class NvmlWithALostGpu(ToldNvml):
    """GPU 1 is lost."""

    def gpu(self, index: int) -> Gpu:
        if index == 1:
            raise NvmlError("asking for GPU 1: it is lost")
        return self.gpus[index]


def test_a_gpu_that_is_lost_is_left_out_and_costs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    levels = {frozenset({0, 2}): Level.PHB}

    topology = discovered(NvmlWithALostGpu((gpu(0), gpu(1), gpu(2)), levels))

    assert topology.gpus == (gpu(0), gpu(2))
    assert topology.bond(0, 1) == Bond(Level.PHB)
    assert "GPU 1 is left out: asking for GPU 1: it is lost" in caplog.text


def test_where_every_gpu_is_left_out_the_causes_are_what_is_told() -> None:
    class AllLost(NvmlWithALostGpu):
        def gpu(self, index: int) -> Gpu:
            return super().gpu(1)

    with pytest.raises(NvmlError, match=r"GPU 0 is left out: .*; GPU 1 is left out: .*lost"):
        discovered(AllLost((gpu(0), gpu(1))))


def test_a_gpu_that_is_split_into_instances_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, DeviceGetMigMode=lambda _: (1, 1))

    with pytest.raises(NvmlError, match="MIG"):
        DriverNvml().gpu(0)


@pytest.mark.parametrize(("count", "lines"), [(1, 0), (2, 1), (4, 1)])
def test_a_driver_that_tells_no_topology_is_said_once_where_it_matters(
    count: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    discovered(ToldNvml(tuple(gpu(index) for index in range(count))))

    assert caplog.text.count("reports no GPU topology") == lines


def test_one_gpu_needs_no_bonds_and_none_needs_nothing() -> None:
    assert discovered(ToldNvml((gpu(0),))).bonds == ((None,),)
    assert discovered(ToldNvml(())).gpus == ()


ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "install the NVIDIA driver",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "modprobe nvidia",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "reboot, or reload the kernel module",
    pynvml.NVML_ERROR_NO_PERMISSION: "/dev/nvidiactl",
    pynvml.NVML_ERROR_UNKNOWN: "NVML answered: Unknown Error",
}


@pytest.mark.parametrize("code", ADVICE)
def test_a_driver_that_cannot_be_opened_says_what_to_do(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", refuse(code))

    with pytest.raises(NvmlError, match=f"opening NVML: .*{ADVICE[code]}") as caught, driver():
        pytest.fail("opened")
    assert caught.value.exit_status == 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """nvidia-ml-py for one GPU with links to a switch, a GPU and a POWER processor."""
    kinds = {
        0: pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH,
        1: pynvml.NVML_NVLINK_DEVICE_TYPE_GPU,
        2: pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU,
        4: pynvml.NVML_NVLINK_DEVICE_TYPE_GPU,
    }

    def state(_handle: object, link: int) -> int:
        if link > max(kinds):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(link in kinds)

    answers(
        monkeypatch,
        DeviceGetHandleByIndex=lambda index: index,
        DeviceGetMinorNumber=lambda _: 3,
        DeviceGetUUID=lambda _: "GPU-0",
        DeviceGetName=lambda _: b"Tesla T4",
        DeviceGetPciInfo=lambda _: SimpleNamespace(busId=b"00000000:3B:00.0"),
        DeviceGetMemoryInfo=lambda _, version=None: memory(GIB + KEPT, KEPT),
        DeviceGetNumaNodeId=lambda _: 1,
        DeviceGetNvLinkState=state,
        DeviceGetNvLinkRemoteDeviceType=lambda _, link: kinds[link],
        DeviceGetNvLinkRemotePciInfo=lambda *_: SimpleNamespace(busId=b"0000:af:00.0"),
    )
    return monkeypatch


def memory(total: int, reserved: int) -> SimpleNamespace:
    return SimpleNamespace(total=total, reserved=reserved)


@pytest.mark.usefixtures("library")
def test_what_the_driver_keeps_for_itself_or_a_flag_says_is_not_promised() -> None:
    assert DriverNvml().gpu(0).memory == GIB
    assert DriverNvml(reserved=Bytes(2 * KEPT)).gpu(0).memory == GIB - KEPT
    assert DriverNvml(reserved=Bytes(2 * GIB)).gpu(0).memory == 0


@pytest.mark.parametrize(
    ("total", "kept"), [(4 * GIB, 256 * MIB), (40 * GIB, 1280 * MIB), (141 * GIB, 2 * GIB)]
)
def test_of_a_driver_that_does_not_say_a_part_is_kept(
    library: pytest.MonkeyPatch, total: int, kept: int
) -> None:
    def first_form_alone(_handle: object, version: object = None) -> SimpleNamespace:
        if version is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return memory(total, 0)

    library.setattr(pynvml, "nvmlDeviceGetMemoryInfo", first_form_alone)

    assert DriverNvml().gpu(0).memory == total - kept


def test_a_gpu_without_a_memory_figure_has_the_machines_memory(
    library: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unsupported = refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    library.setattr(pynvml, "nvmlDeviceGetMemoryInfo", unsupported)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemFree: 1 kB\nMemTotal:   {128 * MIB} kB\n")
    nvml = DriverNvml(tmp_path / "sys")

    assert nvml.gpu(0).memory == 126 * GIB
    assert not nvml.has_own_memory(0)
    (tmp_path / "proc/meminfo").write_text("MemFree: 1 kB\n")
    with pytest.raises(NvmlError, match="no memory figure of it, nor has /proc/meminfo"):
        nvml.gpu(0)


def kernel_says(sysfs: Path, vendor: str, node: str) -> None:
    device = sysfs / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "numa_node").write_text(f"{node}\n")


@pytest.mark.usefixtures("library")
def test_a_gpu_is_read_with_its_minor_number_and_the_kernels_numa_node(tmp_path: Path) -> None:
    kernel_says(tmp_path, "0x10de", "0")

    found = DriverNvml(tmp_path).gpu(7)

    bus_id = "00000000:3B:00.0"
    assert found == Gpu(7, 3, GpuUUID("GPU-0"), bus_id, "Tesla T4", Bytes(GIB), numa_node=0)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("vendor", "node"), [("0x10de", "-1"), ("0x8086", "0"), ("0x10de", "?")])
def test_nvml_is_asked_for_the_numa_node_where_the_kernel_does_not_know(
    tmp_path: Path, vendor: str, node: str
) -> None:
    kernel_says(tmp_path, vendor, node)

    assert DriverNvml(tmp_path).gpu(0).numa_node == 1


def test_links_are_told_apart_by_what_they_end_at(library: pytest.MonkeyPatch) -> None:
    assert DriverNvml().nvlinks(0) == NvLinks(Counter({"00000000:AF:00.0": 2}), switch=1)

    missing = refuse(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    library.setattr(pynvml, "nvmlDeviceGetNvLinkRemoteDeviceType", missing)
    assert DriverNvml().nvlinks(0) == NvLinks(Counter({"00000000:AF:00.0": 4}))


def test_a_driver_without_topology_gives_gpus_without_levels(library: pytest.MonkeyPatch) -> None:
    unsupported = refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    library.setattr(pynvml, "nvmlDeviceGetTopologyCommonAncestor", unsupported)

    assert DriverNvml().level(0, 1) is None


def test_a_lost_gpu_is_named_with_what_to_look_for(library: pytest.MonkeyPatch) -> None:
    lost = refuse(pynvml.NVML_ERROR_GPU_IS_LOST)
    library.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lost)

    with pytest.raises(NvmlError, match=r"asking for GPU 2: .*Xid 79"):
        DriverNvml().gpu(2)
