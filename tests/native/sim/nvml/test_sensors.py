"""What the simulated NVML tells of a card: power, temperature, clocks, its link, its serial."""

import itertools
import time
from collections.abc import Callable

import pynvml as nv
import pytest

from tests.native.programs.sim_client import alloc, cuda, held, init, spin, word
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}

nv.nvmlInit()
handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
h = handles[0]


def error(function: Callable[..., object], *arguments: object) -> int:
    with pytest.raises(nv.NVMLError) as refused:
        function(*arguments)
    return int(refused.value.value)


def load() -> None:
    """Work, until a whole sample period had it."""
    assert [init(), spin(30_000_000_000)] == [0, 0]
    while nv.nvmlDeviceGetUtilizationRates(h).gpu < 100:
        time.sleep(0.01)


def test_an_idle_gpu_draws_little_and_a_busy_one_its_limit_and_energy_grows() -> None:
    def told() -> tuple[int, ...]:
        sensors = nv.nvmlDeviceGetTemperature(h, 0), nv.nvmlDeviceGetCurrentClocksEventReasons(h)
        return nv.nvmlDeviceGetPowerUsage(h), nv.nvmlDeviceGetEnforcedPowerLimit(h), *sensors

    before = nv.nvmlDeviceGetTotalEnergyConsumption(h)
    assert told() == (50_000, 300_000, 30, 1)
    load()
    assert told() == (300_000, 300_000, 80, 0)
    # a sample period's worth at least: 300 W, 150 ms
    assert nv.nvmlDeviceGetTotalEnergyConsumption(h) - before > 300 * 150


def test_limits_and_thresholds_are_told_and_those_of_fans_are_not() -> None:
    threshold = nv.nvmlDeviceGetTemperatureThreshold

    assert nv.nvmlDeviceGetPowerManagementLimitConstraints(h) == [100_000, 300_000]
    assert nv.nvmlDeviceGetPowerManagementLimit(h) == 300_000
    assert threshold(h, nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN) == 95
    assert error(threshold, h, nv.NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN) == 3
    assert error(threshold, h, 8) == error(nv.nvmlDeviceGetTemperature, h, 9) == 2
    assert error(nv.nvmlDeviceGetFanSpeed, h) == 3


def test_clocks_are_one_frequency() -> None:
    assert nv.nvmlDeviceGetClock(h, nv.NVML_CLOCK_SM, nv.NVML_CLOCK_ID_CURRENT) == 1410
    assert nv.nvmlDeviceGetMaxClockInfo(h, nv.NVML_CLOCK_MEM) == 1410
    assert nv.nvmlDeviceGetSupportedMemoryClocks(h) == [1410]
    assert nv.nvmlDeviceGetSupportedGraphicsClocks(h, 1410) == [1410]
    assert error(nv.nvmlDeviceGetSupportedGraphicsClocks, h, 1) == 6
    assert error(nv.nvmlDeviceGetClockInfo, h, 4) == 2


def test_each_card_has_a_serial_it_is_found_by() -> None:
    serials = [nv.nvmlDeviceGetSerial(handle) for handle in handles]

    assert len(set(serials)) == len({nv.nvmlDeviceGetBoardId(handle) for handle in handles}) == 2
    assert all(len(serial) == 13 and serial.isdigit() for serial in serials)
    found = [nv.nvmlDeviceGetHandleBySerial(serial) for serial in serials]
    assert [nv.nvmlDeviceGetIndex(one) for one in found] == [0, 1]
    assert (nv.nvmlDeviceGetBrand(h), error(nv.nvmlDeviceGetHandleBySerial, "none")) == (2, 6)


@on(link_bandwidth=0)
@on(link_bandwidth=25_000_000_000)
def test_the_link_is_the_generation_that_carries_the_models_bandwidth(box: SimBox) -> None:
    generation, speed = (4, 16000) if box.machine.models["T4"].link_bandwidth else (3, 8000)

    assert nv.nvmlDeviceGetCurrPcieLinkGeneration(h) == generation
    assert nv.nvmlDeviceGetMaxPcieLinkGeneration(h) == generation
    assert (nv.nvmlDeviceGetCurrPcieLinkWidth(h), nv.nvmlDeviceGetPcieSpeed(h)) == (16, speed)
    assert nv.nvmlDeviceGetPcieThroughput(h, nv.NVML_PCIE_UTIL_TX_BYTES) == 0
    assert error(nv.nvmlDeviceGetPcieThroughput, h, 2) == 2


@on(link_bandwidth=1_000_000)
def test_a_copy_to_the_gpu_is_seen_on_the_link_in_its_direction() -> None:
    size = 60_000_000  # a megabyte takes a second
    assert [init(), alloc(size)] == [0, 0]
    assert cuda.cuMemcpyHtoDAsync_v2(word(held[-1]), b"x" * size, word(size), None) == 0

    seen = [
        nv.nvmlDeviceGetPcieThroughput(h, way)
        for way in (nv.NVML_PCIE_UTIL_TX_BYTES, nv.NVML_PCIE_UTIL_RX_BYTES)
    ]
    assert seen == [0, 1000]


def test_a_card_tells_its_cores_and_what_it_lacks() -> None:
    assert (nv.nvmlDeviceGetNumGpuCores(h), nv.nvmlDeviceGetMemoryBusWidth(h)) == (40 * 64, 5120)
    assert (nv.nvmlDeviceGetNumFans(h), nv.nvmlDeviceGetVirtualizationMode(h)) == (0, 0)
    assert (nv.nvmlUnitGetCount(), nv.nvmlGetExcludedDeviceCount()) == (0, 0)


def test_samples_are_of_the_last_periods_and_newer_than_asked_for() -> None:
    load()

    samples = nv.nvmlDeviceGetSamples(h, nv.NVML_GPU_UTILIZATION_SAMPLES, 0)[1]
    stamps = [sample.timeStamp for sample in samples]
    assert stamps == sorted(set(stamps))
    assert {b - a for a, b in itertools.pairwise(stamps)} <= {166_666, 166_667}
    assert samples[-1].sampleValue.uiVal == 100
    power = nv.nvmlDeviceGetSamples(h, nv.NVML_TOTAL_POWER_SAMPLES, 0)[1]
    assert power[-1].sampleValue.uiVal == 300_000
    assert error(nv.nvmlDeviceGetSamples, h, nv.NVML_ENC_UTILIZATION_SAMPLES, 0) == 3
    assert error(nv.nvmlDeviceGetSamples, h, nv.NVML_GPU_UTILIZATION_SAMPLES, 2**62) == 6
