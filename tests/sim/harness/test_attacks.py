"""Programs that try to get more GPU time than their share (tests/native/attacks.c).

On the virtual clock, behind the real shim, with the real manager. Each lives for longer than we
look. What it is bound to get is the promise, whatever it did before: no window of four seconds may
show more than that and the work in flight at its ends.
"""

import subprocess
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from harness import HarnessResult, Tenant, play

from gpumanager.compute.audit import GROSS
from tests import ROOT

pytestmark = pytest.mark.namespaces

SOURCE = ROOT / "tests/native/attacks.c"
PROMISE = 0.30
SECONDS, INTERVAL, WINDOW = 5, 0.5, 4
LATE = 1.5
"""Seconds until it is sure that somebody takes what it does not pay for."""
IN_FLIGHT = 0.1 / WINDOW
"""Part of a window. What may be in flight is 20 ms, and one kernel more, of 50 ms at most."""


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("attacks") / "attacks"
    flags = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
    subprocess.run(["gcc", *flags, SOURCE, "-o", program, "-ldl"], check=True)
    return program


async def attack(
    program: Path,
    name: str,
    *others: Tenant,
    managed: bool = True,
    seconds: int = SECONDS,
    gpus: int = 1,
) -> HarnessResult:
    tenant = Tenant("attacker", round(PROMISE * 100), f"{program} {name} {seconds + 2}")
    tenants = [tenant, *others]
    return await play(tenants, seconds, interval=INTERVAL, managed=managed, gpus=gpus)


def most(played: HarnessResult, window: float = WINDOW) -> float:
    """Its share of the GPU in the best of all windows."""
    count = round((played.seconds - window) / INTERVAL) + 1
    starts = [number * INTERVAL for number in range(count)]
    return max(played.share("attacker", start, start + window) for start in starts)


def ahead(played: HarnessResult) -> Sequence[float]:
    """Seconds of GPU time that it had more than its share, at the end of each interval."""
    due = PROMISE * INTERVAL
    return list(accumulate(busy - due for busy in played.busy["attacker"]))


@pytest.mark.parametrize(
    ("name", "least"),
    [
        pytest.param("shapes", 0, id="each launch has a new grid"),
        pytest.param("functions", 0, id="each launch has a new kernel"),
        pytest.param("turning", 0, id="short kernels become long ones"),
        pytest.param("graphs", 0, id="a graph changes before each launch"),
        pytest.param("graph_pair", 0, id="graphs change in two processes"),
        pytest.param("cooperative", 0, id="launches are cooperative"),
        pytest.param("named", 0, id="kernels have the names of collectives"),
        pytest.param("failures", 0.97, id="every other launch fails"),
        pytest.param("streams", 0.97, id="each stream is used once"),
        pytest.param("capture", 0, id="a capture never ends"),
        pytest.param("signals", 0, id="a signal handler launches"),
        pytest.param("contexts", 0.97, id="contexts end while their work is in flight"),
        pytest.param("resets", 0.97, id="devices are reset while work is in flight"),
        pytest.param("one_each", 0, id="each context has one kernel"),
        pytest.param("foreign", 0, id="kernels are of another context"),
        pytest.param("in_turn", 0.97, id="contexts launch in turn"),
    ],
)
async def test_a_program_gets_its_share_and_no_more(attacks: Path, name: str, least: float) -> None:
    """least: part of its share that it gets all the same."""
    played = await attack(attacks, name)

    assert most(played) < PROMISE + IN_FLIGHT
    assert played.share("attacker", 1.0) > least * PROMISE


@pytest.mark.parametrize(
    ("name", "over"),
    [
        ("threads", 0),
        ("crowd", 0),
        ("storm", 0),
        # What is in flight when a process ends is not charged: 2.5 points of all time.
        ("forks", 0.03),
    ],
)
async def test_many_threads_or_processes_get_no_more_than_one(
    attacks: Path, name: str, over: float
) -> None:
    played = await attack(attacks, name, seconds=2)

    assert most(played, 2) < PROMISE + 2 * IN_FLIGHT + over


@pytest.mark.parametrize("name", ["contexts", "graph_pair", "one_each"])
async def test_the_share_holds_while_the_manager_is_away(attacks: Path, name: str) -> None:
    assert most(await attack(attacks, name, managed=False)) < PROMISE + IN_FLIGHT


async def test_a_program_gets_no_more_by_pretending_that_others_wait_for_it(attacks: Path) -> None:
    assert most(await attack(attacks, "behind", gpus=2)) < PROMISE + IN_FLIGHT


async def test_unused_time_is_not_saved_up(attacks: Path) -> None:
    played = await attack(attacks, "saved", seconds=7)

    assert played.share("attacker", 5.0, 7.0) < PROMISE + 0.05


async def test_processes_that_leave_before_they_are_measured_pay_for_most_of_their_time(
    attacks: Path,
) -> None:
    played = await attack(attacks, "runners", seconds=6)

    assert max(ahead(played)) < GROSS * 6 + LATE


@pytest.mark.parametrize("name", ["all_paid", "nothing_charged"])
async def test_a_program_that_rewrites_its_own_meter_gets_no_more_than_its_share(
    attacks: Path, name: str
) -> None:
    """Only people read it: the arbiter charges turns."""
    honest = Tenant("honest", 60, f"kernel=1ms for={SECONDS + 2}s")

    played = await attack(attacks, name, honest)

    assert most(played) < PROMISE + IN_FLIGHT
    assert played.share("honest", 2.0) > 0.97 * 0.60
