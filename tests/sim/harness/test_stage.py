"""Tenants on a stage: real programs behind the real shim, on one simulated GPU."""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import harness
import pytest
from harness import HarnessFailed, Moment, Tenant, agenda, play
from harness.tenants import together
from virtual_clock import virtual_clock

from gpumanager.errors import GpuManagerError
from gpumanager.sim import host
from gpumanager.sim.machine import DriverBehaviour

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.namespaces

ALONE = Tenant("alone", 30, "kernel=2ms for=2s")
CROWD = (
    Tenant("small", 20, "kernel=300us pattern=sync for=2s"),
    Tenant("large", 50, "kernel=7ms for=2s", processes=2),
)


@pytest.mark.parametrize("wake_ns", [None, 50_000])
async def test_a_stage_played_twice_is_the_same_to_the_nanosecond(wake_ns: int | None) -> None:
    first, second = [await play(CROWD, 2.0, wake_ns=wake_ns) for _ in range(2)]

    assert first == second
    assert min(first.busy["small"][5:]) > 0


async def test_without_a_limiter_who_is_alone_has_the_whole_gpu() -> None:
    played = await play([ALONE], 2.0, limiter="none")

    assert played.share("alone") == pytest.approx(1.0, abs=1e-3)


async def test_what_each_received_is_what_its_kernels_took() -> None:
    played = await play(CROWD, 3.0, limiter="none")

    for name, seconds in (("small", 300e-6), ("large", 7e-3)):
        report = played.reports[name]
        assert sum(played.busy[name]) == pytest.approx(report["gpu_seconds"], rel=1e-9)
        assert report["gpu_seconds"] == pytest.approx(report["launches"] * seconds)


async def test_who_starts_later_has_nothing_before() -> None:
    played = await play([ALONE, replace(ALONE, name="later", start=1.0)], 2.0)

    assert played.share("later", 0.0, 1.0) == 0
    assert played.share("later", 1.0, 2.0) > 0.2


async def test_a_lower_slice_lets_a_waiting_neighbour_in_sooner() -> None:
    long = Tenant("long", 50, "kernel=100ms for=1s")
    short = Tenant("short", 50, "kernel=50us pattern=sync for=1s")

    waits = [
        (
            await play(
                [long, short], 1.0, limiter="none", driver=DriverBehaviour(slice_ns=slice_ns)
            )
        ).reports["short"]
        for slice_ns in (1_000_000, 10_000_000)
    ]

    assert waits[1]["gap_max_us"] > 5 * waits[0]["gap_max_us"]


@pytest.mark.parametrize("way", ["gpus=2", "processes=2"])
async def test_a_job_on_two_gpus_exchanges_after_each_kernel(way: str) -> None:
    text = f"kernel=900us pattern=allreduce {way} reduce=100us for=1s blocks=264 threads=1024"

    played = await play([Tenant("job", 50, text)], 1.0, limiter="none", gpus=2)

    report = played.reports["job"]
    assert report["kernels"] / 4 == pytest.approx(1000 * report["seconds"], rel=0.01)
    assert sum(played.busy["job"]) == pytest.approx(2.0, rel=0.01)


def test_the_manager_looks_ten_times_a_second_unless_it_is_away() -> None:
    looks = [at for at, moment in agenda([ALONE], 0.5, 0.25) if moment == "look"]

    assert looks == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    away = {moment for _, moment in agenda([ALONE], 0.5, 0.25, managed=False)}
    assert away == {"mark"}


async def test_unused_time_is_lent_while_the_manager_is_away() -> None:
    tenant = Tenant("tenant", 30, "kernel=2ms for=3s", ceiling=80)

    played = await play([tenant], 3.0, managed=False)

    assert played.share("tenant", 1.0) == pytest.approx(0.80, abs=0.02)


async def test_on_the_system_s_clock_it_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: more time where the program was not loaded in it."""
    short = replace(ALONE, workload="kernel=2ms for=500ms")
    for seconds in (1, 5, 30, 120):
        monkeypatch.setattr(harness, "ASSEMBLY_SECONDS", seconds)
        with contextlib.suppress(HarnessFailed):
            played = await play([short], 0.5, clock="real")
            break

    assert 0 < played.share("alone") < 0.6
    assert played.reports["alone"]["launches"] > 0


@pytest.mark.parametrize("limiter", ["shim", "none"])
async def test_a_program_that_fails_ends_the_stage_with_its_words(
    limiter: Literal["shim", "none"],
) -> None:
    with pytest.raises(HarnessFailed, match=r"(?s)odd-0: exit 2.*pattern=odd"):
        await play(
            [ALONE, Tenant("odd", 10, "kernel=1ms pattern=odd for=1s")], 1.0, limiter=limiter
        )


async def test_a_program_that_is_killed_ends_the_stage(tmp_path: Path) -> None:
    deadly = library(tmp_path, "killed.c")

    with pytest.raises(HarnessFailed, match="alone-0: exit 137"):
        await play([ALONE], 1.0, limiter=deadly)


async def test_a_library_in_the_shim_s_place_finds_its_limit(tmp_path: Path) -> None:
    teller = library(tmp_path, "told_limit.c")

    played = await play([replace(ALONE, workload="cuda-play query")], 0.1, limiter=teller)

    assert played.reports["alone"] == {"percent": 30}


@pytest.mark.parametrize("clock", ["virtual", "real"])
async def test_a_stage_that_is_cancelled_leaves_nothing_behind(
    clock: Literal["virtual", "real"], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="gm", dir="/tmp") as folder:
        monkeypatch.setattr(host, "SHORT", Path(folder))
        begun = asyncio.Event()

        def begin(*words: Any, **more: Any) -> Sequence[tuple[float, Moment]]:
            begun.set()
            return agenda(*words, **more)

        monkeypatch.setattr(harness, "agenda", begin)
        before = children()
        task = asyncio.create_task(play([ALONE], 600.0, clock=clock))
        await begun.wait()
        await asyncio.sleep(0)  # it sleeps until its first moment
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

        assert children() == before
        assert os.listdir(folder) == []  # noqa: PTH208 - no path that an async function may ask


def test_two_stages_of_one_process_cannot_be_on_virtual_clocks(tmp_path: Path) -> None:
    with (
        virtual_clock(tmp_path / "one"),
        pytest.raises(GpuManagerError, match="on a virtual clock already"),
        virtual_clock(tmp_path / "other"),
    ):
        pass


def test_reports_of_several_are_one() -> None:
    one: dict[str, Any] = {"launches": 3, "gap_max_us": 5.0, "gap_p50_us": None, "phases": []}
    other: dict[str, Any] = {"launches": 4, "gap_max_us": 2.0, "gap_p50_us": 1.5, "phases": []}

    merged = together([one, other])

    numbers = {"launches": 7, "gap_max_us": 5.0, "gap_p50_us": 1.5}
    assert merged == {**numbers, "each": (one, other)}


def library(folder: Path, source: str) -> Path:
    """One to preload, of a file in `programs`."""
    target = folder / "library.so"
    command = ["gcc", "-shared", "-fPIC", "-o", str(target), str(PROGRAMS / source)]
    subprocess.run(command, check=True, timeout=300)
    return target


def children() -> list[str]:
    """The processes that are ours."""
    lists = Path("/proc/self/task").glob("*/children")
    return sorted(pid for path in lists for pid in path.read_text().split())
