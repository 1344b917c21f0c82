"""From work done to shares and overheads: the arithmetic of `make gpu-check`."""

import pytest
from gpu_check.outcome import Verdict
from gpu_check.overhead import launch_finding, workload_finding
from gpu_check.shares import Rate, Share, finding, middle, share, slowdown, spread


def test_a_share_is_the_work_done_of_what_the_gpu_can_do() -> None:
    got = share(30, limited=Rate(140), full=Rate(500))

    assert got == Share(guaranteed=30, got=28)
    assert got.error == -2
    assert got.delivered == pytest.approx(93.33, abs=0.01)


@pytest.mark.parametrize(
    ("limited", "full", "got"),
    [
        pytest.param(Rate(200), Rate(500), 40, id="more than promised"),
        pytest.param(Rate(360, 1800), Rate(1000, 1500), 30, id="a higher clock is no larger share"),
        pytest.param(Rate(360), Rate(1000, 1500), 36, id="without a clock seconds count"),
    ],
)
def test_a_share_is_judged_by_the_clocks_of_both_sides(
    limited: Rate, full: Rate, got: float
) -> None:
    seen = share(30, limited, full)

    assert (seen.got, seen.error) == pytest.approx((got, got - 30))


def test_who_did_nothing_has_no_rate() -> None:
    with pytest.raises(ValueError, match="nothing was done"):
        Rate(0)


def test_one_disturbed_window_does_not_move_the_middle() -> None:
    assert middle([Rate(10, 1500), Rate(500, 1510), Rate(501, 1520)]) == Rate(500, 1510)


@pytest.mark.parametrize(
    ("got", "verdict"),
    [
        ((10.2, 30.4, 89.7), Verdict.PASS),
        ((11.9, 31.4, 90.0), Verdict.FAIL),  # 1.1 points on the mean
        ((9.7, 30.0, 90.0), Verdict.FAIL),  # 97 % of the smallest one's entitlement
    ],
)
def test_shares_are_held_to_both_bars(got: tuple[float, ...], verdict: Verdict) -> None:
    shares = [Share(promise, one) for promise, one in zip((10, 30, 90), got, strict=True)]

    assert finding("1 ms", shares).verdict is verdict


def test_a_row_shows_what_was_promised_got_and_missed() -> None:
    row = finding("1 ms", [Share(30, 30.5), Share(70, 69.3)])

    assert row.said == "30: 30.5  70: 69.3; error mean 0.60, most 0.70 points, 99.0 % delivered"
    assert row.figures["got"] == [30.5, 69.3]
    assert row.figures["least_delivered"] == pytest.approx(99)


def test_two_tenants_that_were_promised_all_of_a_gpu_are_measured_and_not_judged() -> None:
    shares = [Share(30, 29), Share(70, 61)]

    assert finding("1 ms", shares, together=True).verdict is Verdict.FIGURE
    assert finding("1 ms", shares).verdict is Verdict.FAIL


def test_slowdown_is_the_median_of_pairs_in_turns() -> None:
    percent, low, high = slowdown([100, 50, 98, 97, 96], [101, 100, 98, 98.94, 97.92])

    assert percent == pytest.approx(2)  # of 1, 100, 0, 2 and 2
    assert (low, high) == pytest.approx((1, 2))


def test_slowdown_needs_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        slowdown([1.0], [1.0, 2.0])


def test_the_middle_half_of_one_value_is_that_value() -> None:
    assert spread([3.0]) == (3.0, 3.0)


def test_a_launch_is_paired_round_by_round() -> None:
    lines = ["driver 2000.0 5000", "shim 2010.0 9000", "shim 3012.0 9200", "driver 3000.0 5200"]

    found = launch_finding("no compute limit", lines)

    assert found.figures["added_ns"] == 11
    assert found.figures["driver_ns"] == 2500
    assert found.figures["slowest_ns"] == {"driver": 5100, "shim": 9100}
    assert found.said.startswith("+11 ns (+10 to +12) on 2500 ns; slowest of 100: 9100 ns")


def test_a_workload_that_got_faster_is_said_to_be() -> None:
    found = workload_finding("no compute limit", [102.0], [100.0], [100.0])

    assert found.said.startswith("-1.96 % time")


@pytest.mark.parametrize(("shim", "verdict"), [("5000.0", Verdict.FAIL), ("2300.0", Verdict.PASS)])
def test_a_launch_may_take_a_fifth_longer(shim: str, verdict: Verdict) -> None:
    assert launch_finding("hot", ["driver 2000.0 1", f"shim {shim} 1"]).verdict is verdict


BARE = [100] * 5, [100] * 5


def test_a_workload_may_be_slower_in_one_turn_but_not_in_most() -> None:
    assert workload_finding("w", [80, 80, 100, 100, 100], *BARE).verdict is Verdict.PASS
    assert workload_finding("w", [80, 80, 80, 100, 100], *BARE).verdict is Verdict.FAIL


def test_a_workload_is_lost_where_two_programs_without_the_shim_differ() -> None:
    found = workload_finding("w", [100] * 5, [100] * 5, [94] * 5)

    assert found.verdict is Verdict.LOST
    assert "two programs without the shim differ" in found.said
