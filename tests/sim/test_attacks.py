"""Programs that try to get more GPU time than their share (tests/native/attacks.c).

On the virtual clock, behind the real shim, looked after by the real manager. Each lives for longer
than we look. What it is bound to get is the promise, whatever it did before: no window of ten
seconds may show more than that and the work in flight at its ends.
"""

import subprocess
from pathlib import Path

import pytest

from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.stage import Played, Tenant, play

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]

SOURCE = Path(__file__).parents[1] / "native" / "attacks.c"
PROMISE = 0.30
SECONDS, INTERVAL, WINDOW = 11, 0.5, 10
IN_FLIGHT = 0.01
"""Of a window: 100 ms. What may be in flight is 20 ms, and one kernel more, of 50 ms at most."""

UNSEEN = "processes that are gone when a sample ends are not in it, nor was their first launch paid"
QUEUED = "a launch that is prepaid by its kind's cost is not looked at, however long its kernel is"
ESCAPES = {"runners": UNSEEN, "twisting": QUEUED}
FAIR = (
    "threads",
    "crowd",
    "shapes",
    "functions",
    "failures",
    "streams",
    "contexts",
    "resets",
    "capture",
    "signals",
    "cooperative",
    "graphs",
    "turning",
    "forks",
    "storm",
    "one_each",
    "graph_pair",
    "foreign",
    "in_turn",
)


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("attacks") / "attacks"
    flags = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
    subprocess.run(["gcc", *flags, SOURCE, "-o", program, "-ldl"], check=True)
    return program


async def attack(program: Path, name: str, *, managed: bool = True) -> Played:
    tenant = Tenant("attacker", round(PROMISE * 100), f"{program} {name} {SECONDS + 2}")
    return await play([tenant], SECONDS, interval=INTERVAL, managed=managed)


def most(played: Played) -> float:
    """Its share of the GPU in the best of all windows."""
    starts = [number * INTERVAL for number in range(round((SECONDS - WINDOW) / INTERVAL) + 1)]
    return max(played.share("attacker", start, start + WINDOW) for start in starts)


@pytest.mark.parametrize(
    "name",
    [
        *FAIR,
        *(
            pytest.param(name, marks=pytest.mark.xfail(reason=why, strict=True))
            for name, why in ESCAPES.items()
        ),
    ],
)
async def test_no_program_gets_more_than_its_share(attacks: Path, name: str) -> None:
    assert most(await attack(attacks, name)) < PROMISE + IN_FLIGHT


@pytest.mark.parametrize("name", ["contexts", "resets", "failures", "streams", "forks", "in_turn"])
async def test_a_strange_program_gets_its_share_all_the_same(attacks: Path, name: str) -> None:
    played = await attack(attacks, name)

    assert played.share("attacker", 1.0) > 0.97 * PROMISE


@pytest.mark.parametrize("name", ["forks", "storm", "contexts", "shapes", "in_turn"])
async def test_the_share_holds_while_the_manager_is_away(attacks: Path, name: str) -> None:
    assert most(await attack(attacks, name, managed=False)) < PROMISE + IN_FLIGHT


async def test_what_was_not_used_is_not_saved_up(attacks: Path) -> None:
    played = await attack(attacks, "saved")

    assert played.share("attacker", 5.0, 7.0) < PROMISE + 0.05
