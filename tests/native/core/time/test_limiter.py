"""The limiter on a clock of the test: the promised share, for every length and pattern."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_shim._shim import ffi, lib

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
START = 50 * SECOND
MILLION = 1_000_000
PRICE = 1 << lib.LIMITER_PRICE_BITS


def terms(percent: int, burst: int = 20 * MILLISECOND) -> Any:
    given = (percent * 10_000, burst, burst, SECOND, MILLION, PRICE)
    return ffi.new("struct limiter_terms *", given)[0]


def meter() -> Any:
    return ffi.new("struct vcuda_meter *")


class Gpu:
    """A GPU that runs the launches of limited processes one after another."""

    def __init__(self, share: Any) -> None:
        self.terms = share
        self.meter = meter()
        self.now = START
        self.free_at = START
        self.busy = 0
        self.longest_queue = 0

    def launch(self, cost: int, estimate: int | None = None) -> None:
        """Wait as told, then queue a kernel."""
        paid = cost if estimate is None else estimate
        while wait := lib.limiter_admit(self.meter, self.terms, self.now, paid):
            self.now += wait
        self.free_at = max(self.free_at, self.now) + cost
        self.busy += cost
        self.longest_queue = max(self.longest_queue, self.free_at - self.now)

    def synchronise(self) -> None:
        self.now = max(self.now, self.free_at)

    def share(self) -> float:
        return 100 * self.busy / (max(self.now, self.free_at) - START)


def asynchronous(gpu: Gpu, cost: int) -> None:
    gpu.launch(cost)
    gpu.now += 5 * MICROSECOND


def synchronous(gpu: Gpu, cost: int) -> None:
    gpu.launch(cost)
    gpu.synchronise()


@pytest.mark.parametrize("pattern", [asynchronous, synchronous])
@pytest.mark.parametrize("cost", [50 * MICROSECOND, 2 * MILLISECOND, 150 * MILLISECOND])
@pytest.mark.parametrize("percent", [10, 30, 60, 90])
def test_the_share_is_what_was_promised(
    percent: int, cost: int, pattern: Callable[[Gpu, int], None]
) -> None:
    gpu = Gpu(terms(percent))

    while gpu.now < START + 20 * SECOND:
        pattern(gpu, cost)

    assert gpu.share() == pytest.approx(percent, abs=1)


def test_processes_of_one_container_share_one_promise() -> None:
    shared, share = meter(), terms(30)
    clocks, busy = [START, START, START], 0
    while min(clocks) < START + 5 * SECOND:
        turn = clocks.index(min(clocks))
        wait = lib.limiter_admit(shared, share, clocks[turn], MILLISECOND)
        clocks[turn] += wait
        busy += 0 if wait else MILLISECOND

    assert 100 * busy / (5 * SECOND) == pytest.approx(30, abs=1)


def test_an_estimate_that_was_wrong_is_made_good_by_settling() -> None:
    gpu = Gpu(terms(40))

    while gpu.now < START + 10 * SECOND:
        gpu.launch(8 * MILLISECOND, estimate=50 * MICROSECOND)
        gpu.synchronise()
        lib.limiter_settle(gpu.meter, gpu.terms, 8 * MILLISECOND - 50 * MICROSECOND)

    assert gpu.share() == pytest.approx(40, abs=1)
    assert gpu.meter.charged_ns == gpu.busy


def test_the_work_in_flight_is_bounded() -> None:
    gpu = Gpu(terms(50, burst=20 * MILLISECOND))

    while gpu.now < START + SECOND:
        gpu.launch(MILLISECOND)

    assert gpu.longest_queue <= 21 * MILLISECOND


def test_idle_time_is_saved_up_to_the_burst_and_no_more() -> None:
    gpu = Gpu(terms(50, burst=20 * MILLISECOND))
    gpu.launch(MILLISECOND)
    gpu.now += 100 * SECOND

    at_once = 0
    while lib.limiter_admit(gpu.meter, gpu.terms, gpu.now, MILLISECOND) == 0:
        at_once += 1

    assert at_once == 21  # 20 ms saved, 20 ms ahead, at half the GPU; and the one that reaches it


def test_a_refused_launch_changes_nothing_and_is_told_how_long_to_wait() -> None:
    one, share = meter(), terms(10)
    lib.limiter_admit(one, share, START, 100 * MILLISECOND)
    before = bytes(ffi.buffer(one))

    wait = lib.limiter_admit(one, share, START, MILLISECOND)

    assert bytes(ffi.buffer(one)) == before
    assert lib.limiter_admit(one, share, START + wait - 1, MILLISECOND) == 1
    assert lib.limiter_admit(one, share, START + wait, MILLISECOND) == 0


def test_a_launch_that_waits_for_the_work_in_flight_to_drain_waits_by_that_much_longer() -> None:
    one, share = meter(), terms(10)
    lib.limiter_admit(one, share, START, 100 * MILLISECOND)
    wait = lib.limiter_admit(one, share, START, MILLISECOND)

    share.lead_ns = -5 * MILLISECOND

    assert lib.limiter_admit(one, share, START, MILLISECOND) == wait + 25 * MILLISECOND
    assert lib.limiter_admit(one, share, START + wait + 25 * MILLISECOND, MILLISECOND) == 0


@given(
    clock=st.integers(0, 2**64 - 1),
    now=st.integers(0, 2**64 - 1),
    cost=st.integers(0, 2**64 - 1),
    rate=st.integers(1, 1_000_000),
    debt=st.integers(-(2**63), 2**63 - 1),
)
def test_no_figure_overflows(clock: int, now: int, cost: int, rate: int, debt: int) -> None:
    one, share = meter(), terms(30)
    share.rate_ppm = rate
    one.virtual_time = clock

    wait = lib.limiter_admit(one, share, now, cost)
    after = one.virtual_time

    assert wait == max(0, clock - min(now + 20 * MILLISECOND, 2**64 - 1))
    assert after == clock if wait else after >= min(clock, now)
    lib.limiter_settle(one, share, debt)
    assert one.virtual_time >= after if debt >= 0 else one.virtual_time <= after


def test_terms_come_from_the_configuration() -> None:
    limit: Any = ffi.new("struct vcuda_limit *")
    limit.core_percent = 30
    default = lib.limiter_terms(limit, START)
    limit.rate_ppm, limit.burst_us = 450_000, 250_000
    given_terms = lib.limiter_terms(limit, START)
    limit.core_percent = limit.rate_ppm = 0

    assert (default.rate_ppm, default.burst_ns) == (300_000, 20 * MILLISECOND)
    assert (given_terms.rate_ppm, given_terms.burst_ns) == (450_000, 250 * MILLISECOND)
    assert lib.limiter_terms(limit, START).rate_ppm == 1


@pytest.mark.parametrize(
    ("until", "now", "rate", "others", "price"),
    [
        (0, START, 700_000, MILLION, PRICE * 3 // 2),  # for good; but nobody knows of the others
        (START, START - 1, 700_000, 200_000, PRICE * 3 // 2),
        (START, START, 300_000, MILLION, PRICE),
        (START, START + SECOND, 300_000, MILLION, PRICE),
    ],
)
def test_what_the_manager_lends_holds_for_its_term_and_then_the_promise(
    until: int, now: int, rate: int, others: int, price: int
) -> None:
    limit: Any = ffi.new("struct vcuda_limit *")
    limit.core_percent, limit.rate_ppm, limit.others_ppm = 30, 700_000, 200_000
    limit.cost_ppm, limit.share_until = 1_500_000, until

    lent = lib.limiter_terms(limit, now)

    assert (lent.rate_ppm, lent.others_ppm, lent.price) == (rate, others, price)


@pytest.mark.parametrize(
    ("served", "clock", "lag"),
    [
        (0, START, 20 * MILLISECOND),  # nothing known: the burst
        (START, START, 20 * MILLISECOND),
        (START, START - 5 * MILLISECOND, 20 * MILLISECOND),
        (START, START - 300 * MILLISECOND, 300 * MILLISECOND),  # while it had work: all of it
        (START, START - 7 * SECOND, SECOND),
    ],
)
def test_the_clock_may_lag_by_what_neighbours_took_but_not_by_idle_time(
    served: int, clock: int, lag: int
) -> None:
    assert lib.limiter_lag(served, clock, terms(30)) == lag


@pytest.mark.parametrize(("rate", "lag"), [(300_000, SECOND), (900_000, 20 * MILLISECOND)])
def test_what_was_promised_is_made_good_and_what_was_lent_is_not(rate: int, lag: int) -> None:
    limit: Any = ffi.new("struct vcuda_limit *")
    limit.core_percent, limit.rate_ppm = 30, rate

    share = lib.limiter_terms(limit, START)

    assert lib.limiter_lag(START, START - 2 * SECOND, share) == lag


def test_what_neighbours_took_while_there_was_work_can_be_had_later() -> None:
    one, share = meter(), terms(50)
    lib.limiter_admit(one, share, START, MILLISECOND)

    lib.limiter_serve(one, START + 200 * MILLISECOND)  # it is seen on the GPU yet
    now, at_once = START + 200 * MILLISECOND, 0
    while lib.limiter_admit(one, share, now, MILLISECOND) == 0:
        at_once += 1

    lag = 20 + 200 - 2  # saved up at first, what came to it since, less what was paid
    assert at_once == (lag + 20) // 2 + 1


def test_a_light_load_saves_up_no_more_than_the_burst() -> None:
    gpu = Gpu(terms(50))
    for _ in range(2000):
        gpu.launch(100 * MICROSECOND)
        gpu.now += MILLISECOND

    at_once = 0
    while lib.limiter_admit(gpu.meter, gpu.terms, gpu.now, MILLISECOND) == 0:
        at_once += 1

    assert at_once <= 21


@pytest.mark.parametrize(
    ("previous", "begun", "elapsed", "now", "end"),
    [(0, 10, 5, 100, 15), (12, 10, 5, 100, 17), (98, 10, 5, 100, 100), (0, 10, 2**64 - 1, 50, 50)],
)
def test_work_ends_no_earlier_than_what_was_before_it_and_its_own_length(
    previous: int, begun: int, elapsed: int, now: int, end: int
) -> None:
    assert lib.limiter_end(previous, begun, elapsed, now) == end


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_price_is_the_time_multiplied_and_never_overflows(price: int, length: int) -> None:
    exact = length * price // PRICE

    assert lib.limiter_price(price, length) == min(exact, 2**63 - 1)


def test_what_is_known_to_be_served_never_goes_back() -> None:
    one = meter()
    lib.limiter_serve(one, START)
    lib.limiter_serve(one, START - 1)

    assert one.served_until == START


@pytest.mark.parametrize(("clock", "served"), [(START + 1, START), (START, 0)])
def test_who_waits_counts_as_busy_while_it_has_paid_ahead(clock: int, served: int) -> None:
    one = meter()
    one.virtual_time = clock
    lib.limiter_wait(one, START)

    assert one.served_until == served


def test_an_allowance_grows_while_it_is_used_up_and_shrinks_when_it_lies_about() -> None:
    share, size, sizes = terms(50), 0, []
    for _ in range(8):
        size = lib.limiter_allowance(share, size, 2 * size)
        sizes.append(size)
    unused = lib.limiter_allowance(share, size, SECOND)

    assert sizes[0] == lib.LIMITER_ALLOWANCE_NS // lib.LIMITER_ALLOWANCES_PER_BURST
    assert sizes[1] == 2 * sizes[0]
    assert sizes[-1] == lib.LIMITER_ALLOWANCE_NS
    assert unused == sizes[-1] // 2


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 4_000_000))
def test_an_allowance_is_a_small_part_of_the_burst(last: int, age: int, burst_us: int) -> None:
    share = terms(50, burst=burst_us * MICROSECOND)

    size = lib.limiter_allowance(share, last, age)

    assert size <= min(lib.LIMITER_ALLOWANCE_NS, share.burst_ns // 16)
