"""Shares on the virtual clock: what holds for any mix, and a part of the benchmark's grid.

Real processes behind the real shim, a simulated GPU, virtual time: a run repeats to the nanosecond,
however busy the machine is. It tests the control law against a model of a GPU, no more. How well
shares are held, `make bench-compute` measures.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from compute import metrics
from compute.cases import WHOLE_GPU
from compute.grid import cases, chosen
from compute.runner import Ran, Runner
from harness import Tenant, play
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.namespaces

POINT = 0.01


def tenants_of(cores: Sequence[int], *loads: str, seconds: int = 3) -> list[Tenant]:
    """One for each share; they launch as the loads say, in turn."""
    return [
        Tenant(f"{number}", share, f"{loads[number % len(loads)]} for={seconds}s")
        for number, share in enumerate(cores)
    ]


@pytest.mark.parametrize(
    ("tenants", "points"),
    [
        pytest.param(tenants_of([30], "kernel=50us"), 1, id="alone, short kernels"),
        pytest.param(tenants_of([30], "kernel=2ms"), 1, id="alone, longer kernels"),
        pytest.param(tenants_of([30, 70], "kernel=200us"), 1, id="two with 200 us"),
        pytest.param(tenants_of([30, 70], "kernel=2ms"), 1.5, id="two with 2 ms"),
        pytest.param(
            tenants_of([30, 70], "kernel=50us pattern=graph count=40"), 1.5, id="captured graphs"
        ),
        pytest.param(
            tenants_of([30, 70], "kernel=200us ahead=60s", "kernel=200us"),
            1,
            id="one never synchronises",
        ),
        pytest.param(
            tenants_of([30, 70], "kernel=200us ptsz=1"), 1, id="the threads' own default streams"
        ),
        pytest.param(tenants_of([10, 20, 30, 40], "kernel=200us"), 1, id="four"),
        pytest.param(tenants_of([12] * 8, "kernel=1ms"), 1, id="eight"),
    ],
)
async def test_tenants_that_want_all_of_a_gpu_have_their_shares(
    tenants: list[Tenant], points: float
) -> None:
    played = await play(tenants, 3.0)

    for one in tenants:
        assert played.share(one.name, 1) == pytest.approx(one.cores / 100, abs=points * POINT)


@pytest.mark.parametrize(
    ("cores", "load"),
    [
        pytest.param([50], "kernel=50us", id="short kernels"),
        pytest.param([50], "kernel=10ms pattern=sync", id="one kernel at a time"),
        pytest.param([30, 60], "kernel=2ms", id="neighbours"),
    ],
)
async def test_shares_hold_for_processes_that_the_driver_never_lists(
    cores: list[int], load: str
) -> None:
    """An agent in a pid namespace of its own is told the pids of the host: limits hold by turns."""
    tenants = tenants_of(cores, load, seconds=6)

    played = await play(tenants, 6.0, same_pids=False)

    for one in tenants:
        assert played.share(one.name, 2) == pytest.approx(one.cores / 100, abs=POINT)


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner()


async def run(runner: Runner, name: str, limiter: str = "shim") -> Ran:
    (found,) = chosen([name], cases())
    return await runner.run(found, limiter="none" if limiter == "none" else "shim")


@pytest.mark.parametrize(
    "name",
    [
        "one/10us/async/10",
        "one/1ms/burst/70",
        "one/1ms/streams/30",
        "one/20ms/graph/70",
        "one/150ms/async/90",
        "step/start/50",
        "step/guarantee",
        "lent/1ms async from 1ms sync/100",
        "lent/1ms sync from 1ms async/100",
    ],
)
async def test_a_case_of_the_benchmark_meets_its_bars(runner: Runner, name: str) -> None:
    ran = await run(runner, name)

    assert {one.phase: one.missed for one in ran.verdicts} == {
        one.phase: () for one in ran.verdicts
    }, ran.verdicts


async def test_without_a_limiter_the_same_bars_are_missed(runner: Runner) -> None:
    ran = await run(runner, "two/30-70/1ms/async", limiter="none")

    assert "error" in ran.verdicts[0].missed


async def test_a_lender_has_its_own_share_again_within_a_fifth_of_a_second(runner: Runner) -> None:
    ran = await run(runner, "lent/1ms async from 1ms sync/100")

    back = ran.case.phases[1]
    assert ran.played.share("a", back.begin + 0.2, back.end) >= 0.98 * 0.30


async def test_processes_of_one_container_share_its_part_evenly() -> None:
    work = f"kernel=2ms {WHOLE_GPU} for=4s"

    played = await play([Tenant("a", 50, work, processes=3)], 4, interval=0.5)

    each = played.reports["a"]["each"]
    launches = [report["launches"] for report in each]
    assert max(launches) <= 1.25 * min(launches)
    assert max(report["gap_max_us"] for report in each) <= 0.2e6


TEN_AT_ONCE = "pattern=burst count=10 every=1us"


@pytest.mark.parametrize("cores", [50, 80])
async def test_unlike_processes_of_one_container_get_within_two_points_of_each_other(
    cores: int,
) -> None:
    tenants = [
        Tenant(name, cores, f"kernel=2ms {pattern} {WHOLE_GPU} for=5s", container="c")
        for name, pattern in (("a", "pattern=sync"), ("b", TEN_AT_ONCE))
    ]

    played = await play(tenants, 5)

    one, other = (100 * played.share(name, since=2) for name in "ab")
    lost = 100 * sum(played.lost[20:]) / 3  # switches between them are theirs
    assert one + other == pytest.approx(cores - lost, abs=1)
    assert one == pytest.approx(other, abs=2)


async def test_siblings_whose_kernels_vary_take_nothing_of_a_neighbours_share() -> None:
    tenants = [
        Tenant(name, 50, f"kernel=30us,2ms {WHOLE_GPU} for=5s", container="c") for name in "ab"
    ]
    tenants.append(Tenant("n", 40, f"kernel=2ms {WHOLE_GPU} for=5s"))

    played = await play(tenants, 5)

    assert 100 * played.share("n", since=2) > 38
    assert 100 * (played.share("a", since=2) + played.share("b", since=2)) > 44


@pytest.mark.parametrize(
    ("cores", "work", "points"),
    [
        (30, "kernel=1ms,9ms streams=4", 2.5),
        (80, "kernel=30us,2ms streams=3", 2.0),
        (10, "kernel=50us,500us streams=5", 2.0),
    ],
)
async def test_streams_that_overlap_are_charged_their_time_once(
    cores: int, work: str, points: float
) -> None:
    """points: by which half a second may differ: some 10 ms of it, which is what a container has
    at a time once its ceiling has held it back, are 2 points."""
    played = await play([Tenant("a", cores, f"{work} {WHOLE_GPU} for=4s")], 4)

    settled = metrics.shares(played.busy["a"][10:], played.interval, 0.5)
    assert all(abs(share - cores) <= points for share in settled), settled


@dataclass(frozen=True, slots=True)
class Load:
    """What a tenant launches all the time. unit: seconds of its longest launch."""

    text: str
    unit: float


@st.composite
def loads(draw: st.DrawFn) -> Load:
    lengths = draw(st.lists(st.sampled_from([50, 200, 1000, 4000, 20000]), min_size=1, max_size=2))
    kernel = ",".join(f"{length}us" for length in lengths)
    pattern = draw(st.sampled_from(["async", "graph"]))  # overlapping streams: docs/performance.md
    words = {"async": "", "graph": "pattern=graph count=4"}[pattern]
    unit = max(lengths) * 1e-6
    whole = sum(lengths) * 1e-6 * 4 if pattern == "graph" else unit
    return Load(f"kernel={kernel} {words} {WHOLE_GPU}", whole)


@st.composite
def mixes(draw: st.DrawFn) -> list[tuple[int, Load]]:
    """Shares that leave something of the GPU, and a load for each."""
    promises = draw(st.lists(st.integers(5, 60), min_size=1, max_size=4))
    while sum(promises) > 95:
        promises.pop()
    return [(promise, draw(loads())) for promise in promises]


WINDOW = 5.0
SETTLED = 3.0
"""Seconds after which what all saved up before they began is used up."""
SAVED, IN_FLIGHT = 0.1, 0.02
"""Seconds of GPU time that may be saved up, and that may be launched and not yet done."""
UNSEEN = 0.2
"""Of what a tenant is due, by which it may be short beside others: for switches, and for what of
the launches in flight at the end of a turn was not its own."""


@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(mixes())
def test_no_window_is_over_the_limit_or_short_of_what_is_due(
    mix: Sequence[tuple[int, Load]],
) -> None:
    """By one launch, which nobody can cut in two, it may be over or short."""
    seconds = SETTLED + WINDOW + 1
    tenants = [
        Tenant(f"tenant-{number}", cores, f"{load.text} for={seconds:g}s")
        for number, (cores, load) in enumerate(mix)
    ]

    played = asyncio.run(play(tenants, seconds))

    for tenant, (cores, load) in zip(tenants, mix, strict=True):
        busy = played.busy[tenant.name][round(SETTLED / played.interval) :]
        over = metrics.most_beyond(busy, played.interval, WINDOW, cores)
        assert over <= SAVED + IN_FLIGHT + load.unit
        least = min(metrics.shares(busy, played.interval, WINDOW)) / 100 * WINDOW
        assert least >= (1 - UNSEEN) * cores / 100 * WINDOW - load.unit
