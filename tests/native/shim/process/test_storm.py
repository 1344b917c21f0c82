"""The storm (storm.py) at reduced length: as the shim is, and with its races made wide."""

from pathlib import Path
from typing import Any

import pytest

from tests.native.shim.process import storm
from tests.native.shim.process.storm import LIMIT, Outcome
from tests.native.shim_container import build_cuda_shim

pytestmark = pytest.mark.namespaces

WIDENED = """
#ifndef __ASSEMBLER__
#include <sched.h>
#include <stdlib.h>
#include <time.h>
static inline void widen(void)
{
    static _Thread_local unsigned seed;
    struct timespec pause = {.tv_nsec = 20000};
    if (seed == 0)
        seed = (unsigned)(size_t)&seed;
    if (rand_r(&seed) % 8 == 0)
        nanosleep(&pause, NULL);
    else if (rand_r(&seed) % 2 == 0)
        sched_yield();
}
#define SHIM_STEP() widen()
#endif
"""


@pytest.fixture(scope="session")
def widened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CUDA shim with a pause, often, between any two steps of its books."""
    folder = tmp_path_factory.mktemp("widened")
    (folder / "widen.h").write_text(WIDENED)
    return build_cuda_shim(folder, f"-include{folder / 'widen.h'}")


async def assert_it_rages(work: Path, **how: Any) -> None:
    """However slow the machine is: for longer where not all of it happened in a few seconds."""
    for seconds in (3, 30):
        folder = work / str(seconds)
        folder.mkdir()
        outcome = await storm.storm(folder, seconds=seconds, **how)
        assert outcome.faults() == [], outcome.words
        if raged(outcome):
            return
    pytest.fail(str(outcome))


def raged(outcome: Outcome) -> bool:
    kinds = ("taken", "given", "refused", "killed", "execs")
    return outcome.peak > 0.9 * LIMIT and all(outcome.report[what] for what in kinds)


@pytest.mark.parametrize("processes", [2, 8, 64])
async def test_racing_processes_get_all_there_is_and_never_more(work: Path, processes: int) -> None:
    await assert_it_rages(work, processes=processes, threads=2, kills=30, seed=processes)


@pytest.mark.parametrize(
    ("processes", "threads"), [(8, 3), (2, 1)], ids=["a crowd", "two, seen through"]
)
async def test_not_even_when_every_step_of_a_reservation_takes_long(
    work: Path, widened: Path, processes: int, threads: int
) -> None:
    """In a crowd most goes wrong; between two it is soonest proved that a refusal was."""
    await assert_it_rages(
        work, processes=processes, threads=threads, kills=15, seed=5, shim=widened
    )


async def test_modules_that_come_and_go_meanwhile_take_nothing_from_the_limit(work: Path) -> None:
    """What the driver takes for their variables is estimated, then measured: never too little."""
    outcome = await storm.storm(
        work, processes=1, threads=3, seconds=60, requests=200, kills=0, seed=2,
        kinds="module,plain",
    )  # fmt: skip

    assert outcome.peak <= LIMIT, outcome.words
    assert outcome.report["failure"] == outcome.report["left"] == outcome.left == 0
    assert min(outcome.report[what] for what in ("taken", "given", "refused")) > 0
