"""What is believed of a meter that a hostile container writes."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.values import SECOND
from gpumanager.virtual.pages.meter_counters import AT_ONCE_NS, TIMES, MeterCounters

NOW = 1000 * SECOND
TICK = SECOND // 10
WORD = st.integers(0, 2**64 - 1)


@dataclass
class Meter:
    """As the page has it."""

    charged_ns: int = 0
    retired_ns: int = 0
    throttled: int = 0
    throttled_ns: int = 0
    awaited_ns: int = 0
    launches: int = 0


METER = st.builds(Meter, WORD, WORD, WORD, WORD, WORD, WORD)


def test_an_honest_meter_is_followed_to_the_nanosecond() -> None:
    counters = MeterCounters.begin(NOW, Meter(5, 3), 0)

    for look in range(1, 100):
        meter = Meter(5 + look * TICK, 3 + look * TICK, look, look * TICK, look * TICK, 7 * look)
        counters.follow(NOW + look * TICK, meter, look)

        assert counters.charged.counter.value == meter.charged_ns
        assert counters.retired.counter.value == meter.retired_ns
        assert counters.waits.value == meter.throttled + meter.throttled_ns
        assert counters.awaited.value == meter.awaited_ns
        assert counters.launches.value == meter.launches
        assert counters.long.counter.value == look


def test_what_was_charged_too_much_is_given_back() -> None:
    counters = MeterCounters.begin(NOW, Meter(30 * SECOND), 0)

    counters.follow(NOW + TICK, Meter(18 * SECOND), 0)

    assert counters.charged.counter.value == 18 * SECOND


def test_a_launch_of_half_a_minute_is_charged_at_once() -> None:
    counters = MeterCounters.begin(NOW, Meter(), 0)

    counters.follow(NOW + TICK, Meter(30 * SECOND), 0)

    assert counters.charged.counter.value == 30 * SECOND


@given(METER, st.lists(st.tuples(METER, WORD, st.integers(0, SECOND)), max_size=50))
def test_no_meter_claims_more_than_time_allows(
    first: Meter, rest: list[tuple[Meter, int, int]]
) -> None:
    counters = MeterCounters.begin(NOW, first, 0)
    begin, now = counters.charged.counter.value, NOW

    for meter, long_ns, elapsed in rest:
        before = (counters.waits.value, counters.awaited.value, counters.launches.value)
        now += elapsed
        counters.follow(now, meter, long_ns)

        after = (counters.waits.value, counters.awaited.value, counters.launches.value)
        assert all(late >= early for early, late in zip(before, after, strict=True))
        possible = AT_ONCE_NS + TIMES * (now - NOW)
        times = [counters.charged, counters.retired, counters.long]
        assert all(0 <= one.counter.value < 2**63 for one in times)
        assert abs(counters.charged.counter.value - begin) <= possible
        assert counters.charged.counter.value - counters.retired.counter.value <= 3 * possible
        assert all(0 <= value < 2**63 for value in after)
