"""What the simulated NVML tells of a card: power, temperature, clocks, its link, its serial."""

import itertools
import json
from dataclasses import replace

from gpumanager.sim.machine import Machine
from tests.native.sim_box import SimBox, machine, sim_box

ASK = """
import ctypes, json, time, pynvml
from pynvml import *
nvmlInit()
handles = [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
h = handles[0]
def error(function, *arguments):
    try:
        return function(*arguments)
    except NVMLError as refused:
        return refused.value
def load():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, spin = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), b"any image") == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(spin), module, b"spin") == 0
    length = ctypes.c_uint64(30_000_000_000)
    words = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    assert cuda.cuLaunchKernel(spin, 40, 1, 1, 1024, 1, 1, 0, None, words, None) == 0
    while nvmlDeviceGetUtilizationRates(h).gpu < 100:
        time.sleep(0.05)
def ask():
    return ANSWER
PREPARE
print(json.dumps(ask()))
"""


def told(box: SimBox, answer: str, prepare: str = "") -> object:
    return json.loads(box.python(ASK.replace("ANSWER", answer).replace("PREPARE", prepare)))


def with_link(bandwidth: int) -> Machine:
    """Bytes a second to the host."""
    made = machine()
    models = {name: replace(one, link_bandwidth=bandwidth) for name, one in made.models.items()}
    return replace(made, models=models)


def test_an_idle_gpu_draws_little_and_a_busy_one_its_limit(box: SimBox) -> None:
    answer = (
        "[nvmlDeviceGetPowerUsage(h), nvmlDeviceGetEnforcedPowerLimit(h),"
        " nvmlDeviceGetTemperature(h, 0), nvmlDeviceGetCurrentClocksEventReasons(h)]"
    )

    assert told(box, answer) == [50_000, 300_000, 30, 1]
    assert told(box, answer, "load()") == [300_000, 300_000, 80, 0]


def test_energy_grows_with_what_ran(box: SimBox) -> None:
    drawn = told(
        box,
        "[before, nvmlDeviceGetTotalEnergyConsumption(h)]",
        "before = nvmlDeviceGetTotalEnergyConsumption(h); load()",
    )

    assert isinstance(drawn, list)
    assert drawn[1] - drawn[0] > 300 * 150  # a sample period's worth at least: 300 W, 150 ms


def test_limits_and_thresholds_are_told_and_those_of_fans_are_not(box: SimBox) -> None:
    assert told(
        box,
        "[nvmlDeviceGetPowerManagementLimitConstraints(h), nvmlDeviceGetPowerManagementLimit(h),"
        " nvmlDeviceGetTemperatureThreshold(h, NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),"
        " error(nvmlDeviceGetTemperatureThreshold, h, NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN),"
        " error(nvmlDeviceGetTemperatureThreshold, h, 8), error(nvmlDeviceGetTemperature, h, 9),"
        " error(nvmlDeviceGetFanSpeed, h)]",
    ) == [[100_000, 300_000], 300_000, 95, 3, 2, 2, 3]


def test_clocks_are_one_frequency(box: SimBox) -> None:
    assert told(
        box,
        "[nvmlDeviceGetClock(h, NVML_CLOCK_SM, NVML_CLOCK_ID_CURRENT),"
        " nvmlDeviceGetMaxClockInfo(h, NVML_CLOCK_MEM), nvmlDeviceGetSupportedMemoryClocks(h),"
        " nvmlDeviceGetSupportedGraphicsClocks(h, 1410),"
        " error(nvmlDeviceGetSupportedGraphicsClocks, h, 1), error(nvmlDeviceGetClockInfo, h, 4)]",
    ) == [1410, 1410, [1410], [1410], 6, 2]


def test_each_card_has_a_serial_it_is_found_by(box: SimBox) -> None:
    found = told(
        box,
        "[[nvmlDeviceGetSerial(x) for x in handles],"
        " [nvmlDeviceGetIndex(nvmlDeviceGetHandleBySerial(nvmlDeviceGetSerial(x)))"
        " for x in handles],"
        " len({nvmlDeviceGetBoardId(x) for x in handles}), nvmlDeviceGetBrand(h),"
        " error(nvmlDeviceGetHandleBySerial, 'none')]",
    )

    assert isinstance(found, list)
    serials, *rest = found
    assert len(set(serials)) == 2
    assert all(len(serial) == 13 and serial.isdigit() for serial in serials)
    assert rest == [[0, 1], 2, 2, 6]


def test_the_link_is_the_generation_that_carries_the_models_bandwidth(box: SimBox) -> None:
    answer = (
        "[nvmlDeviceGetCurrPcieLinkGeneration(h), nvmlDeviceGetMaxPcieLinkGeneration(h),"
        " nvmlDeviceGetCurrPcieLinkWidth(h), nvmlDeviceGetPcieSpeed(h),"
        " nvmlDeviceGetPcieThroughput(h, NVML_PCIE_UTIL_TX_BYTES),"
        " error(nvmlDeviceGetPcieThroughput, h, 2)]"
    )

    assert told(box, answer) == [3, 3, 16, 8000, 0, 2]
    with sim_box(with_link(25 * 10**9)) as other:
        assert told(other, answer) == [4, 4, 16, 16000, 0, 2]


def test_a_copy_to_the_gpu_is_seen_on_the_link_in_its_direction() -> None:
    with sim_box(with_link(10**6)) as box:  # a megabyte takes a second
        client = box.client()
        assert client("init()") == 0
        assert client("alloc(60_000_000)") == 0
        copy = (
            "cuda.cuMemcpyHtoDAsync_v2(word(held[-1]), b'x' * 60_000_000, word(60_000_000), None)"
        )
        assert client(copy) == 0

        assert told(
            box,
            "[nvmlDeviceGetPcieThroughput(h, NVML_PCIE_UTIL_TX_BYTES),"
            " nvmlDeviceGetPcieThroughput(h, NVML_PCIE_UTIL_RX_BYTES)]",
        ) == [0, 1000]


def test_a_card_tells_its_cores_and_what_it_lacks(box: SimBox) -> None:
    assert told(
        box,
        "[nvmlDeviceGetNumGpuCores(h), nvmlDeviceGetMemoryBusWidth(h), nvmlDeviceGetNumFans(h),"
        " nvmlDeviceGetVirtualizationMode(h), nvmlUnitGetCount(), nvmlGetExcludedDeviceCount()]",
    ) == [40 * 64, 5120, 0, 0, 0, 0]


def test_samples_are_of_the_last_periods_and_newer_than_asked_for(box: SimBox) -> None:
    samples = told(
        box,
        "[[[s.timeStamp, s.sampleValue.uiVal] for s in nvmlDeviceGetSamples(h, kind, 0)[1]]"
        " for kind in (NVML_GPU_UTILIZATION_SAMPLES, NVML_TOTAL_POWER_SAMPLES)]"
        " + [error(nvmlDeviceGetSamples, h, NVML_ENC_UTILIZATION_SAMPLES, 0)]"
        " + [error(nvmlDeviceGetSamples, h, NVML_GPU_UTILIZATION_SAMPLES, 2**62)]",
        "load()",
    )

    assert isinstance(samples, list)
    utilization, power, encoder, newer = samples
    stamps = [stamp for stamp, _ in utilization]
    assert stamps == sorted(set(stamps))
    assert {b - a for a, b in itertools.pairwise(stamps)} <= {166_666, 166_667}
    assert utilization[-1][1] == 100
    assert power[-1][1] == 300_000
    assert (encoder, newer) == (3, 6)
