"""The virtual clock, by programs that sleep, look, fork, hang and die (clock_actor.c)."""

import asyncio
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_clock import EPOCH_NS, VirtualClock, virtual_clock

from tests.waiting import has_ended, until
from vcuda_shim import SIM_CLOCK
from vcuda_shim._sim import lib

SOURCE = Path(__file__).with_name("clock_actor.c")
MS = 1_000_000
SECOND = 1000 * MS
HOUR = 3600 * SECOND
LOOK = lib.SIMCLOCK_LOOK_NS


@pytest.fixture(scope="session")
def actor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("clock") / "clock_actor"
    command = ["gcc", "-std=gnu11", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror"]
    command += ["-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, timeout=300)
    return target


class Scene:
    """Programs that live by one virtual clock, all with the same output."""

    def __init__(self, clock: VirtualClock, folder: Path, actor: Path) -> None:
        self.clock = clock
        self._actor = actor
        self._output = folder / "output"
        self._started: list[subprocess.Popen[bytes]] = []

    async def start(self, *words: object) -> subprocess.Popen[bytes]:
        """It is there, and waits for its first turn."""
        process = self._begin([str(word) for word in words])
        await self.reaches(process, "asleep")
        return process

    def _begin(self, words: list[str]) -> subprocess.Popen[bytes]:
        command = words if words[0].startswith("/") else [str(self._actor), *words]
        environment = {"PATH": os.environ["PATH"], **self.clock.environment()}
        with self._output.open("ab", buffering=0) as output:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, env=environment
            )
        self._started.append(process)
        return process

    async def enter(self, *words: object) -> subprocess.Popen[bytes]:
        """It has come to its first sleep, at no time."""
        process = await self.start(*words)
        await self.clock.line_up(process.pid, 0, lambda: process.poll() is not None)
        return process

    async def play(self, nanoseconds: int = HOUR) -> list[str]:
        """Let so much time pass; what was said until then."""
        await self.clock.sleep_until(self.clock.now() + nanoseconds)
        return self._output.read_text().splitlines()

    async def reaches(self, process: subprocess.Popen[bytes], state: str) -> None:
        """Its first thread is in this state; the machine's time, for ours stands."""
        await until(lambda: state in self._states(process.pid), seconds=120)

    def _states(self, pid: int) -> set[str]:
        return {taker.state for taker in self.clock.takers() if taker.pid == pid}

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[VirtualClock]:
    with virtual_clock(tmp_path / "clock") as clock:
        yield clock


@pytest.fixture
def scene(clock: VirtualClock, tmp_path: Path, actor: Path) -> Iterator[Scene]:
    scene = Scene(clock, tmp_path, actor)
    yield scene
    scene.close()


async def test_the_time_stands_while_its_conductor_is_awake(scene: Scene) -> None:
    sleeper = await scene.enter("turns", "slept", HOUR, 1)
    before = scene.clock.now()

    await asyncio.to_thread(sleeper_is_still_there, sleeper)

    assert scene.clock.now() == before


def sleeper_is_still_there(process: subprocess.Popen[bytes]) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)


async def test_an_hour_passes_as_soon_as_everybody_sleeps(scene: Scene) -> None:
    await scene.enter("turns", "slept", HOUR, 1)
    begun = time.monotonic()

    said = await scene.play(HOUR)

    assert said == [f"{HOUR + LOOK} slept"]
    assert time.monotonic() - begun < 600


async def test_sleepers_wake_by_time_and_then_in_the_order_they_fell_asleep(scene: Scene) -> None:
    for name, period in (("slow", 500 * MS), ("fast", 250 * MS), ("quick", 250 * MS)):
        await scene.enter("turns", name, period, SECOND // period)

    said = await scene.play()

    assert [(int(time) // MS - EPOCH_NS // MS, name) for time, name in map(str.split, said)] == [
        *((250, name) for name in ("fast", "quick")),
        *((500, name) for name in ("slow", "fast", "quick")),
        *((750, name) for name in ("fast", "quick")),
        *((1000, name) for name in ("slow", "fast", "quick")),
    ]


@pytest.mark.parametrize("words", [["threads"], ["family"]])
async def test_a_run_repeats_itself_to_the_nanosecond(
    words: list[str], tmp_path: Path, actor: Path
) -> None:
    said = []
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        with virtual_clock(tmp_path / run / "clock") as clock:
            scene = Scene(clock, tmp_path / run, actor)
            try:
                for _ in range(2):
                    await scene.enter(*words)
                said.append(await scene.play())
            finally:
                scene.close()

    assert said[0] == said[1] != []


async def test_who_looks_until_a_time_has_come_sees_it_come(scene: Scene) -> None:
    await scene.start("spin", MS)

    assert await scene.play() == [str(MS // LOOK - 1)]


async def test_who_yields_lets_others_go_on(scene: Scene) -> None:
    await scene.start("yield")
    await scene.start("yield")

    said = await scene.play()

    first, second = (int(line.split()[0]) for line in said)
    assert second - first < MS // 2


async def test_threads_take_part_and_are_waited_for(scene: Scene) -> None:
    await scene.enter("threads")

    said = await scene.play()

    assert [line.split()[1] for line in said] == [*("one", "two", "three") * 2, "joined"]
    assert [int(line.split()[0]) // MS - EPOCH_NS // MS for line in said[:6]] == [1] * 3 + [2] * 3


async def test_children_take_part_and_are_waited_for(scene: Scene) -> None:
    parent = await scene.enter("family")

    said = await scene.play()

    assert [line.split(maxsplit=1)[1] for line in said] == [
        "first",
        "waited for the first",
        "second",
        "waited for the second",
        "nobody left",
    ]
    assert parent.wait(timeout=600) == 0


async def test_another_program_in_a_process_goes_on_in_its_place(scene: Scene) -> None:
    await scene.enter("become", "other")

    said = await scene.play()

    assert [line.split()[1] for line in said] == ["becomes", "other"]


async def test_a_shell_and_its_jobs_live_by_the_clock(scene: Scene) -> None:
    await scene.enter("/bin/bash", "-c", "sleep 3600 & sleep 1800; date -u +%s; wait; date -u +%s")

    half, whole = await scene.play(2 * HOUR)

    assert int(whole) - int(half) == 1800


async def test_all_clocks_of_a_program_agree(scene: Scene) -> None:
    await scene.enter("clocks")

    (said,) = await scene.play()

    whole_seconds, of_the_day, since_boot, computed = map(int, said.split())
    assert whole_seconds == of_the_day == 1_767_225_600
    assert since_boot == EPOCH_NS // SECOND + 7
    assert computed < 7


@pytest.mark.parametrize("verb", ["burn", "listen"])
async def test_the_death_of_who_runs_does_not_stop_the_time(scene: Scene, verb: str) -> None:
    await scene.enter("turns", "other", SECOND, 2)
    victim = await scene.start(verb)
    playing = asyncio.create_task(scene.play())
    await scene.reaches(victim, "running")

    victim.send_signal(signal.SIGKILL)

    assert [line.split()[1] for line in await playing] == ["other", "other"]


async def test_the_death_of_a_sleeper_is_noticed(scene: Scene) -> None:
    victim = await scene.enter("turns", "victim", SECOND, 1)
    await scene.enter("turns", "other", SECOND, 2)

    victim.kill()
    victim.wait(timeout=600)

    assert victim.pid not in (one.pid for one in scene.clock.takers())
    assert [line.split()[1] for line in await scene.play()] == ["other", "other"]


async def test_who_blocks_elsewhere_holds_nobody_up_and_comes_back(scene: Scene) -> None:
    listener = await scene.start("listen")
    await scene.enter("turns", "other", SECOND, 2)
    said = await scene.play(10 * SECOND)

    assert listener.stdin is not None
    listener.stdin.close()
    await scene.reaches(listener, "asleep")

    assert [line.split()[1] for line in said] == ["other", "other"]
    assert [line.split()[1] for line in await scene.play()] == ["other", "other", "heard"]


async def test_the_time_stands_until_who_ends_has_gone(scene: Scene) -> None:
    ending = await scene.enter("turns", "last", SECOND, 1)

    await scene.play(SECOND)

    assert has_ended(ending.pid)


async def test_the_time_stands_until_the_last_thread_of_a_process_has_gone(scene: Scene) -> None:
    """Its first thread is gone before. Who watches the process is told with the last one."""
    ending = await scene.enter("crowd")
    watching = os.pidfd_open(ending.pid)

    await scene.play(2 * SECOND)

    assert select.select([watching], [], [], 0)[0] == [watching]
    os.close(watching)


def test_without_a_page_a_program_lives_by_the_system(actor: Path, tmp_path: Path) -> None:
    for page in ({}, {"SIM_CLOCK": str(tmp_path / "missing")}, {"SIM_CLOCK": "/dev/null"}):
        before = time.monotonic_ns()

        said = subprocess.run(
            [actor, "turns", "real", "1000", "1"],
            env={"LD_PRELOAD": str(SIM_CLOCK), **page},
            check=True,
            capture_output=True,
            timeout=600,
        ).stdout.split()

        assert before < int(said[0]) < time.monotonic_ns()


async def test_the_time_goes_on_whoever_is_killed_and_whenever(scene: Scene) -> None:
    crowd = [await scene.enter("turns", number, 100_000, 10_000) for number in range(12)]

    for victim in crowd[:-1]:
        playing = asyncio.create_task(scene.play(5 * MS))
        await asyncio.sleep(0)  # it begins
        victim.kill()
        await playing

    said = await scene.play(2 * SECOND)
    assert sum(line.endswith(" 11") for line in said) == 10_000
    assert crowd[-1].wait(timeout=600) == 0
