"""cuda-work on the simulated driver: it launches what its text says, and reports what it launched.

Where a figure matters it is the simulated GPU's own account, or what a witness between the program
and the driver wrote down. The programs live by a virtual clock, but where one must be killed.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from virtual_clock import VirtualClock, virtual_clock

import vcuda_shim
from gpumanager.units import MIB
from tests.native.sim_box import SimBox, sim_box

WORK = str(vcuda_shim.PROGRAMS / "cuda-work")
WAIT = 120.0
MS = 1_000_000


class Timed:
    """A machine on a virtual clock, and programs that tell what they did."""

    def __init__(self, box: SimBox, clock: VirtualClock) -> None:
        self.box, self.clock = box, clock

    def report(self, text: str, *words: str, **environment: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.say("--json", *words, text, **environment))
        return told

    def say(self, *words: str, **environment: str) -> str:
        return asyncio.run(self._run(*words, **environment))

    async def _run(self, *words: str, **environment: str) -> str:
        pipe = asyncio.subprocess.PIPE
        lives = self.box.environment(**self.clock.environment(), **environment)
        process = await asyncio.create_subprocess_exec(
            WORK, *words, env=lives, stdout=pipe, stderr=pipe
        )
        ending = asyncio.create_task(process.communicate())
        while not ending.done():
            if len(self.clock.takers()) == 1:  # we alone
                await asyncio.sleep(0.002)
            else:
                await self.clock.sleep_until(self.clock.now() + MS)
        said, complained = await ending
        assert (process.returncode, complained) == (0, b"")
        return said.decode()


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Timed]:
    with virtual_clock(tmp_path / "clock") as clock, sim_box() as box:
        yield Timed(box, clock)


class Witness:
    """What gave the GPU work: each call's function and forms, stream, blocks and threads."""

    def __init__(self, folder: Path, box: SimBox) -> None:
        library = folder / "libcuda.so.1"
        source = Path(__file__).with_name("witness_cuda.c")
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fPIC"]
        command = ["gcc", *flags, "-shared", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, timeout=300)
        self._log = folder / "log"
        self.environment = {
            "LD_LIBRARY_PATH": f"{folder}:{box.libraries}",
            "WITNESS_DRIVER": str(box.libraries / "libcuda.so.1"),
            "WITNESS_LOG": str(self._log),
        }

    def calls(self) -> list[tuple[str, str, int, int]]:
        rows = [line.rsplit(" ", 3) for line in self._log.read_text().splitlines()]
        return [(name, stream, int(blocks), int(threads)) for name, stream, blocks, threads in rows]


@pytest.fixture
def witness(timed: Timed, tmp_path: Path) -> Witness:
    return Witness(tmp_path, timed.box)


@pytest.mark.parametrize(
    ("text", "launches", "kernels"),
    [
        pytest.param("kernel=400ms", 2, 2, id="async: two batches of one kernel each"),
        pytest.param("kernel=400ms ahead=1600ms", 4, 4, id="async: two batches of two"),
        pytest.param("kernel=400ms pattern=sync", 1, 1, id="sync: not over before the time is"),
        pytest.param("kernel=200ms pattern=burst count=3 every=160ms", 3, 3, id="burst: all"),
        pytest.param("kernel=200ms pattern=graph count=2", 2, 4, id="graph: as async"),
        pytest.param("kernel=200ms pattern=graph count=2 sync=1", 1, 2, id="graph: in step"),
        pytest.param("kernel=200ms pattern=graph count=2 every=160ms", 1, 2, id="graph: bursts"),
    ],
)
def test_a_pattern_launches_as_far_ahead_as_it_says(
    timed: Timed, text: str, launches: int, kernels: int
) -> None:
    told = timed.report(f"{text} for=300ms")

    account = timed.box.account()
    assert (told["launches"], told["kernels"]) == (launches, kernels)
    assert account.launches == kernels
    assert account.busy_ns == round(told["gpu_seconds"] * 1e9)


@pytest.mark.parametrize(
    "text",
    [
        "kernel=50us",
        "kernel=1ms,3ms,500us",
        "kernel=1ms,2ms pattern=burst count=5 every=20ms",
        "kernel=1ms pattern=poisson count=5 every=20ms sync=1 host=100us",
        "kernel=200us,300us pattern=graph count=7",
        "kernel=1ms pattern=graph count=4 streams=2 every=30ms blocks=40 threads=1024",
        "kernel=1ms streams=3 blocks=40 threads=1024",
        "kernel=1ms cooperative=1",
        "kernel=1ms ex=1",
        "kernel=1ms ptsz=1",
    ],
)
def test_the_gpu_was_busy_for_as_long_as_the_report_says(timed: Timed, text: str) -> None:
    told = timed.report(f"{text} for=100ms")

    account = timed.box.account()
    assert account.launches == told["kernels"] > 0
    # kernels that share the GPU end at whole nanoseconds
    assert account.busy_ns == pytest.approx(told["gpu_seconds"] * 1e9, rel=1e-5)
    assert told["seconds"] * 1e9 >= account.busy_ns


def test_what_is_waited_for_takes_at_least_as_long_as_its_kernels(timed: Timed) -> None:
    each = timed.report("kernel=3ms pattern=sync for=100ms")
    bursts = timed.report("kernel=3ms pattern=burst count=4 every=15ms for=100ms")

    assert each["delay_p50_us"] >= 3_000
    assert bursts["delay_p50_us"] >= 12_000
    for told in (each, bursts):
        assert told["delay_p50_us"] <= told["delay_p99_us"] <= told["delay_max_us"]
        assert told["gap_p50_us"] <= told["gap_p99_us"] <= told["gap_max_us"]


def test_half_of_the_waits_are_no_longer_than_the_first_percentile_told(timed: Timed) -> None:
    """Four waits, of 10 and 200 ms in turn."""
    told = timed.report("kernel=10ms,200ms pattern=sync for=300ms")

    assert told["launches"] == 4
    assert 10_000 <= told["delay_p50_us"] < 200_000 <= told["delay_p99_us"]
    assert 10_000 <= told["gap_p50_us"] < 200_000 <= told["gap_p99_us"]


def test_bursts_that_are_late_are_left_out(timed: Timed) -> None:
    """Due at 0, 200, 400 and 600 ms; each takes 300 ms."""
    told = timed.report("kernel=100ms pattern=burst count=3 every=200ms for=700ms")

    assert told["launches"] in (3, 6)
    assert told["delay_p50_us"] >= 300_000


def test_a_request_waits_for_the_requests_that_arrived_before_it(timed: Timed) -> None:
    """About ten arrive in 200 ms, each is 50 ms of work: the last one waits for all others."""
    told = timed.report("kernel=50ms pattern=poisson every=20ms seed=3 for=200ms")

    served = told["launches"]
    assert served >= 5
    assert told["delay_p50_us"] > 50_000
    assert told["delay_max_us"] > served * 50_000 - 200_000
    assert told["delay_p50_us"] <= told["delay_p90_us"] <= told["delay_p99_us"]


def test_a_seed_decides_when_requests_arrive(timed: Timed) -> None:
    counts = [
        timed.report(f"kernel=1us pattern=poisson every=1ms seed={seed} for=300ms")["launches"]
        for seed in (1, 1, 2)
    ]

    assert counts[0] == counts[1] != counts[2]
    assert all(200 < count < 400 for count in counts)


def test_host_time_follows_each_wait(timed: Timed) -> None:
    for text in ("pattern=sync host=50ms", "ahead=4ms host=100ms"):
        assert timed.report(f"kernel=1ms {text} for=300ms")["launches"] <= 6


def test_phases_come_one_after_another(timed: Timed) -> None:
    text = "kernel=2ms for=50ms;rest=100ms ;\n kernel=1ms pattern=sync  for=50ms ;"
    start = timed.clock.now() + 300 * MS

    told = timed.report(text, "--start", str(start))

    first, rest, last = told["phases"]
    assert [phase["text"] for phase in told["phases"]] == [
        "kernel=2ms for=50ms",
        "rest=100ms",
        "kernel=1ms pattern=sync for=50ms",
    ]
    assert (rest["launches"], rest["gap_p50_us"]) == (0, None)
    assert last["begin_ns"] >= start + 150 * MS
    assert told["launches"] == first["launches"] + last["launches"]
    assert told["begin_ns"] + told["seconds"] * 1e9 >= start + 200 * MS
    assert timed.box.account().first_work_ns >= start
    assert told["begin_ns"] >= start


def test_the_device_is_the_one_asked_for(timed: Timed) -> None:
    timed.report("kernel=1ms for=30ms", "--device", "1")

    assert [timed.box.account(gpu).launches > 0 for gpu in (0, 1)] == [False, True]


def test_streams_take_turns(timed: Timed, witness: Witness) -> None:
    timed.report("kernel=1ms streams=3 blocks=7 threads=64 for=100ms", **witness.environment)

    calls = witness.calls()
    streams = [stream for _, stream, _, _ in calls]
    assert len(set(streams[:3])) == 3
    assert all(stream == streams[place % 3] for place, stream in enumerate(streams))
    assert {(name, blocks, threads) for name, _, blocks, threads in calls} == {
        ("cuLaunchKernel", 7, 64)
    }


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("kernel=1ms", ["cuLaunchKernel"]),
        ("kernel=1ms cooperative=1", ["cuLaunchCooperativeKernel"]),
        ("kernel=1ms ex=1", ["cuLaunchKernelEx"]),
        ("kernel=1ms ptsz=1", ["cuLaunchKernel ptsz"]),
        ("kernel=1ms ex=1 ptsz=1", ["cuLaunchKernelEx ptsz"]),
        ("copy=1MiB:d2h pattern=sync", ["cuMemcpyDtoHAsync"]),
        ("copy=1MiB:d2d pattern=sync", ["cuMemcpyDtoDAsync"]),
        (
            "kernel=1ms memset=1MiB copy=1MiB:h2d pattern=sync",
            ["cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyHtoDAsync"],
        ),
    ],
)
def test_a_step_is_made_of_the_calls_it_names(
    timed: Timed, witness: Witness, text: str, forms: list[str]
) -> None:
    told = timed.report(f"{text} for=30ms", **witness.environment)

    calls = witness.calls()
    assert told["launches"] > 0
    assert [name for name, _, _, _ in calls] == forms * (told["launches"] // len(forms))
    assert {stream for _, stream, _, _ in calls} == {"(nil)"}


def test_a_graph_holds_the_steps_and_is_launched_as_one(timed: Timed, witness: Witness) -> None:
    text = "kernel=1ms memset=1MiB pattern=graph count=3 for=100ms"

    told = timed.report(text, **witness.environment)

    names = [name for name, _, _, _ in witness.calls()]
    assert names[:6] == ["cuLaunchKernel", "cuMemsetD8Async"] * 3
    assert names[6:] == ["cuGraphLaunch"] * told["launches"]
    assert told["kernels"] == 3 * told["launches"]
    assert told["bytes"] == 3 * MIB * told["launches"]


def test_fills_and_copies_take_the_memory_they_need(timed: Timed) -> None:
    told = timed.report("memset=64MiB copy=32MiB:d2d pattern=sync for=2ms")

    assert timed.box.account().bytes_peak == (64 + 2 * 32) * MIB
    assert told["bytes"] == told["launches"] // 2 * (64 + 32) * MIB
    assert told["gpu_seconds"] == 0


def test_processes_report_as_one(timed: Timed) -> None:
    told = timed.report("kernel=1ms processes=3 for=100ms; kernel=2ms for=50ms")

    account = timed.box.account()
    assert told["processes"] == 3
    assert account.launches == told["launches"] == sum(p["launches"] for p in told["phases"])
    assert account.busy_ns == pytest.approx(told["gpu_seconds"] * 1e9, rel=1e-5)


@contextmanager
def running(box: SimBox, text: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [WORK, text], env=box.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def on_the_gpu(box: SimBox) -> set[int]:
    return {occupant.pid for occupant in box.gpus.processes()}


def test_each_process_is_one_of_its_own_on_the_gpu(box: SimBox) -> None:
    with running(box, "kernel=5ms processes=4 for=60s") as first:
        until(lambda: len(on_the_gpu(box)) == 4)

        assert first.pid in on_the_gpu(box)


def test_processes_do_not_outlive_the_first(box: SimBox) -> None:
    with running(box, "kernel=5ms processes=3 for=60s") as first:
        until(lambda: len(on_the_gpu(box)) == 3)
        others = on_the_gpu(box) - {first.pid}
        first.kill()
        first.wait()

        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others))


def test_a_process_that_fails_fails_the_program(box: SimBox) -> None:
    with running(box, "kernel=5ms processes=2 for=1s") as first:
        until(lambda: len(on_the_gpu(box)) == 2)
        (other,) = on_the_gpu(box) - {first.pid}
        os.kill(other, signal.SIGKILL)
        told = first.communicate(timeout=WAIT)[1]

    assert (first.returncode, told) == (1, "cuda-work: one of its processes failed\n")


def test_a_text_can_come_from_a_file(timed: Timed, tmp_path: Path) -> None:
    text = tmp_path / "work.txt"
    text.write_text("kernel=1ms   # short ones\n  for=10ms;\n# then\nrest=10ms\n")

    told = timed.report(f"@{text}")

    assert [phase["text"] for phase in told["phases"]] == ["kernel=1ms for=10ms", "rest=10ms"]


def test_without_json_it_says_the_same_in_words(timed: Timed) -> None:
    shown = timed.say("kernel=500ms pattern=sync for=300ms").splitlines()

    assert shown[0].startswith("kernel=500ms pattern=sync for=300ms: 1 launches in 0.")
    assert shown[1].startswith("  1 kernels, 0.50 s of GPU time, ")
    assert [line.split(" p50 ")[0] for line in shown[2:]] == ["  between launches", "  until ended"]


def test_help_shows_how_to_begin(box: SimBox) -> None:
    shown = box.work("--help")

    assert shown.returncode == 0
    assert "cuda-work 'kernel=2ms for=5s'" in shown.stdout


ANY = "kernel=2ms for=1s "
KERNEL = "write kernel=2ms or kernel=1ms,9ms"
COPY = "write copy=64MiB:h2d, :d2h or :d2d"
PATTERN = "write pattern=async, sync, burst, poisson, graph or allreduce"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no text: write for example 'kernel=2ms for=5s'"),
        (["kernel=2ms", "for=1s"], "for=1s: a second text; put the whole text in quotes"),
        (["--jsno", ANY], "--jsno: unknown option, try --help"),
        (["--device", "one", ANY], "--device: needs a whole number"),
        (["--start"], "--start: needs a whole number"),
        (["@/nowhere"], "/nowhere: No such file or directory"),
        ([ANY + "; kernel=2"], f"phase 2: kernel=2: {KERNEL}"),
    ],
)
def test_bad_usage_ends_with_2_and_one_line(box: SimBox, words: list[str], complaint: str) -> None:
    finished = box.work(*words)

    assert finished.stderr == f"cuda-work: {complaint}\n"
    assert (finished.returncode, finished.stdout) == (2, "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "nothing to launch; write for example kernel=2ms"),
        ("kernel=2ms", "no end; write for example for=5s"),
        ("for=1s", "nothing to launch; write for example kernel=2ms"),
        ("kernel=1ms,,2ms", f"kernel=1ms,,2ms: {KERNEL}"),
        ("kernel=0ms", f"kernel=0ms: {KERNEL}"),
        ("kernel", f"kernel: {KERNEL}"),
        (ANY + "kernel=3ms", "kernel=3ms: given twice"),
        (ANY + "pattern=wild", f"pattern=wild: {PATTERN}"),
        (ANY + "streams=0", "streams=0: write streams=1 to streams=128"),
        (ANY + "streams=2.5", "streams=2.5: write streams=1 to streams=128"),
        (ANY + "processes=65", "processes=65: write processes=1 to processes=64"),
        ("copy=64MiB", f"copy=64MiB: {COPY}"),
        ("copy=64MiB:h2h", f"copy=64MiB:h2h: {COPY}"),
        ("memset=64MB", "memset=64MB: write memset=64MiB"),
        ("rest=1s for=1s", "rest=: stands alone in its phase"),
        (
            ANY + "pattern=burst",
            "pattern=burst: needs a period; write for example every=100ms",
        ),
        (
            ANY + "pattern=poisson",
            "pattern=poisson: needs a mean period; write for example every=100ms",
        ),
        (ANY + "every=1ms", "every=: only with pattern=burst, poisson or graph"),
        (ANY + "count=3", "count=: only with pattern=burst, poisson or graph"),
        (ANY + "sync=1", "sync=1: only with pattern=graph or poisson; else write pattern=sync"),
        (ANY + "pattern=poisson every=1ms processes=2", "pattern=poisson: by one process"),
        (ANY + "seed=1", "seed=: only with pattern=poisson"),
        (
            ANY + "pattern=burst every=1ms host=1ms",
            "host=: with every= only where pattern=poisson has sync=1",
        ),
        (
            ANY + "ahead=1s pattern=sync",
            "ahead=: only with pattern=async or pattern=graph, without every= and sync=1",
        ),
        (ANY + "ptsz=1 streams=2", "ptsz=1: is one stream, without streams="),
        (ANY + "ex=1 cooperative=1", "cooperative=1: not together with ex=1"),
        (ANY + "gpus=2", "gpus= and reduce=: only with pattern=allreduce"),
        (
            ANY + "pattern=allreduce streams=2",
            "pattern=allreduce: of the others only kernel=, processes=, blocks=, threads=",
        ),
    ],
)
def test_what_a_phase_cannot_be_is_told(box: SimBox, text: str, complaint: str) -> None:
    assert box.work(text).stderr == f"cuda-work: phase 1: {complaint}\n"


def test_an_unknown_word_is_answered_with_the_known_ones(box: SimBox) -> None:
    finished = box.work(ANY + "kernels=3")

    assert finished.returncode == 2
    assert finished.stderr.startswith("cuda-work: phase 1: kernels=3: unknown; the words are ")
    for word in ("kernel=", "pattern=", "for=", "rest=", "ptsz="):
        assert f" {word}" in finished.stderr


def test_other_errors_end_with_1_and_name_the_result(box: SimBox, tmp_path: Path) -> None:
    no_driver = box.work(ANY, GPUSIM_DEV=str(tmp_path))
    no_room = box.work("memset=17GiB for=1s")

    assert no_driver.stderr == "cuda-work: cuInit: CUDA_ERROR_NO_DEVICE (100)\n"
    assert no_room.stderr == "cuda-work: allocating: CUDA_ERROR_OUT_OF_MEMORY (2)\n"
    assert no_driver.returncode == no_room.returncode == 1
