"""cuda-play on the simulated driver: what it prints, and how it ends."""

from pathlib import Path

import pytest

from gpumanager.units import GIB
from tests.native.sim_box import SimBox


def test_query_shows_the_devices_and_their_memory(box: SimBox) -> None:
    shown = box.play("query").stdout.splitlines()

    first, second = (gpu.uuid for gpu in box.machine.topology.gpus)
    assert shown == [
        "CUDA 12.5, 2 devices",
        f"device 0: Tesla T4, {first}, 16 GiB, 16 GiB free of 16 GiB",
        f"device 1: Tesla T4, {second}, 16 GiB, 16 GiB free of 16 GiB",
    ]


def test_allocate_lives_on_after_a_refusal(box: SimBox) -> None:
    finished = box.play("allocate", "--block", "6GiB", "--until-refused")

    assert finished.returncode == 0
    assert finished.stdout.splitlines() == [
        "allocated 6 GiB: 6 GiB held",
        "allocated 6 GiB: 12 GiB held",
        "refused 6 GiB: CUDA_ERROR_OUT_OF_MEMORY, 12 GiB held",
        "freed one block and allocated it again",
        "held 12 GiB at most, 1 refused",
    ]
    assert box.gpus.tenants()[0].devices[box.uuid].bytes_peak == 12 * GIB


def test_allocate_stops_at_the_total(box: SimBox) -> None:
    finished = box.play("allocate", "--block", "1GiB", "--total", "3.5GiB", "--device", "1")

    assert finished.stdout.splitlines()[-1] == "held 3 GiB at most, 0 refused"
    second = box.machine.topology.gpus[1].uuid
    assert box.gpus.tenants()[0].devices[second].bytes_peak == 3 * GIB


@pytest.mark.parametrize("more", [(), ("--sync-each",)])
def test_launch_runs_kernels_of_the_length_asked_for(box: SimBox, more: tuple[str, ...]) -> None:
    words = ("--kernel", "1ms", "--seconds", "0.2", "--memory", "1GiB")

    shown = box.play("launch", *words, *more).stdout.splitlines()

    assert shown[0] == "holding 1 GiB"
    kernels = int(shown[1].split()[0])
    account = box.gpus.tenants()[0].devices[box.uuid]
    assert (account.launches, account.busy_ns) == (kernels, kernels * 1_000_000)
    assert account.bytes_peak == GIB


def test_hold_gives_its_memory_back(box: SimBox) -> None:
    shown = box.play("hold", "--memory", "512MiB", "--seconds", "0.01").stdout

    assert shown == "holding 512 MiB\nfreed 512 MiB\n"
    assert box.gpus.device_bytes(box.uuid) == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["dance"], "cuda-play: unknown verb, try --help: dance"),
        (["launch", "--block", "1"], "cuda-play: unknown option: --block"),
        (["allocate", "--block", "1GB"], "cuda-play: --block: 1GB: write for example 256MiB"),
        (["allocate", "--block"], "cuda-play: --block: needs a value: write for example 256MiB"),
        (["launch", "--kernel", "-1ms"], "cuda-play: --kernel: -1ms: write for example 2ms"),
        (["hold"], "cuda-play: hold: --memory and --seconds are needed"),
    ],
)
def test_bad_usage_ends_with_2_and_one_line(box: SimBox, words: list[str], complaint: str) -> None:
    finished = box.play(*words)

    assert (finished.returncode, finished.stderr, finished.stdout) == (2, complaint + "\n", "")


def test_other_errors_end_with_1_and_name_the_result(box: SimBox, tmp_path: Path) -> None:
    no_driver = box.play("query", GPUSIM_DEV=str(tmp_path))
    no_room = box.play("hold", "--memory", "17GiB", "--seconds", "1")

    assert (no_driver.returncode, no_driver.stderr) == (
        1,
        "cuda-play: cuInit: CUDA_ERROR_NO_DEVICE (100)\n",
    )
    assert (no_room.returncode, no_room.stderr) == (
        1,
        "cuda-play: allocating: CUDA_ERROR_OUT_OF_MEMORY (2)\n",
    )
