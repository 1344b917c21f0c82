"""Who launches on although its GPU time is used up."""

import pytest
from gpumanager.compute.shares import Shares

from gpumanager.compute.overdraft import GROSS_NS, SLACK_NS, TOLERANCE, Bypass, Overdraft
from gpumanager.compute.values import SECOND, Holder, Reading, ShareLease
from gpumanager.gpu.usage.samples import GpuUtilization
from tests.compute.model_node import GPU, TICK, Container, Node, elastic, hard

BURST = SECOND // 50


def looked(rate: float, share: float, seconds: float) -> Overdraft:
    """Granted `rate`, and charged `share` of the time."""
    overdraft = Overdraft(0, 0)
    for look in range(1, round(seconds * 10) + 1):
        overdraft.look(look * TICK, round(share * look * TICK), rate, BURST)
    return overdraft


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.32])
def test_who_holds_to_its_limiter_is_not_overdrawn(share: float) -> None:
    assert not looked(0.3, share, 600).gross


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_who_takes_much_more_than_it_was_granted_is_found_out(share: float) -> None:
    seconds = SLACK_NS / SECOND / (share - TOLERANCE * 0.3) + GROSS_NS / SECOND / share + 2

    assert looked(0.3, share, seconds).gross


def test_a_launch_of_half_a_minute_is_paid_for_and_no_overdraft() -> None:
    """30 s at 30 %: nothing may be launched for 100 s then."""
    overdraft = Overdraft(0, 0)
    for look in range(1, 3001):
        charged = (1 + look // 1000) * 30 * SECOND
        overdraft.look(look * TICK, charged, 0.3, BURST)

    assert not overdraft.gross


@pytest.mark.parametrize(("rate", "takes"), [(0.3, 0.5), (0.1, 1.0), (0.6, 0.9)])
def test_who_is_paused_whenever_it_is_to_be_gets_its_rate(rate: float, takes: float) -> None:
    overdraft, took = Overdraft(0, 0), [0.0]
    for look in range(1, 6001):
        share = 0.0 if overdraft.paused else takes
        took.append(took[-1] + share * TICK)
        overdraft.look(look * TICK, round(took[-1]), rate, BURST)

    assert (took[6000] - took[4000]) / (2000 * TICK) == pytest.approx(rate, abs=0.005)


def test_who_forges_its_meter_gets_no_more_than_its_rate() -> None:
    """It stands still; samples show what it takes, every half second."""
    overdraft, took, owed = Overdraft(0, 0), [0.0], 0.0
    for look in range(1, 6001):
        share = 0.0 if overdraft.paused else 0.5
        took.append(took[-1] + share * TICK)
        owed += share * TICK
        found, owed = (owed, 0.0) if look % 5 == 0 else (0.0, owed)
        overdraft.look(look * TICK, 0, 0.3, BURST, found)

    assert 0.2 < (took[6000] - took[4000]) / (2000 * TICK) < 0.31


def bypassed(outside: float, turns: float, seconds: float) -> Bypass:
    """Parts of the time. Outside of turns it is found each half second, and not while frozen."""
    bypass, owed = Bypass(Overdraft(0, 0)), 0.0
    for look in range(1, round(seconds * 10) + 1):
        runs = not bypass.account.paused
        owed += outside * TICK * runs
        found, owed = (owed, 0.0) if look % 5 == 0 else (0.0, owed)
        bypass.look(look * TICK, round(turns * TICK * runs), round(found), 0.3)
    return bypass


def test_turns_that_were_granted_are_no_overdraft_however_many() -> None:
    assert not bypassed(0.0, 1.0, 600).account.held


def test_who_launches_out_of_turn_is_held_to_its_guarantee_in_all() -> None:
    assert not bypassed(0.5, 0.2, 2).account.held
    assert bypassed(0.5, 0.2, 6).account.held
    assert bypassed(0.5, 0.2, 30).counted / (30 * SECOND) < 0.3 + 0.1


def test_who_was_paused_and_holds_to_its_limiter_again_is_let_go() -> None:
    overdraft = looked(0.3, 0.5, 20)
    assert overdraft.held
    now, charged = overdraft.at, overdraft.charged

    for look in range(1, 3001):
        overdraft.look(now + look * TICK, charged + round(0.29 * look * TICK), 0.3, BURST)

    assert not overdraft.held


def test_what_is_given_back_and_charged_again_counts_once() -> None:
    """An estimate was too high, again and again."""
    overdraft = Overdraft(0, 0)
    for look in range(1, 3001):
        charged = round(0.29 * look * TICK) + (look % 2) * SECOND // 2
        overdraft.look(look * TICK, charged, 0.3, BURST)

    assert not overdraft.held


@pytest.mark.parametrize(
    "containers",
    [
        (hard("a", 30), hard("b", 60)),
        (elastic("a", 30), hard("b", 60, wants=0.1)),
        (hard("a", 30, factor=0.5), hard("b", 60, factor=2.0)),
    ],
)
def test_containers_with_limiters_are_never_overdrawn(containers: tuple[Container, ...]) -> None:
    node = Node(*containers)

    for look in range(600):
        if look % 100 == 0:
            containers[1].wants = 0.1 if containers[1].wants == 1.0 else 1.0
        node.tick()

    assert not any(one.gross or one.held for one in node.shares.overdrafts.values())


def reading(name: str, guarantee: float, charged: int, now: int, *, starves: bool) -> Reading:
    """starves: says that it has work all the time, and that its limiter does not hold it back."""
    return Reading(
        holder=(name, 0),
        gpu=GPU,
        guarantee=guarantee,
        ceiling=guarantee,
        pids=frozenset([ord(name)]),
        paid_until=0 if starves else now,
        charged_ns=charged,
        retired_ns=charged - starves,
        waits=now,
        launches=now // TICK,
    )


def test_a_container_that_only_says_it_is_starved_lowers_nobody_s_promise() -> None:
    """It does nothing, and the driver shows that the GPU is idle; 57 % were granted of 60."""
    shares, now = Shares(), 100 * SECOND
    grants: dict[Holder, ShareLease] = {}
    for look in range(1, 101):
        now += TICK
        good = reading("g", 0.6, round(0.6 * look * TICK), now, starves=False)
        evil = reading("e", 0.3, 1000 * look, now, starves=True)
        answers = {GPU: GpuUtilization(now, (), busy=60)}
        grants |= shares.tick(now, [good, evil], answers)

    assert grants["g", 0].rate_ppm == 600_000
