"""Utilisation as NVML shows it, on a clock of the test's own."""

from tests.native.sim.time.timeline import PERIOD, timeline


def test_utilisation_is_of_the_last_period_that_ended_in_whole_percent() -> None:
    with timeline(2) as line:
        line.settle_periods()
        line.queue(0, PERIOD // 4)
        line.queue(1, PERIOD * 126 // 1000)

        line.advance(PERIOD - 1)
        before = [line.sample(process)[0] for process in (0, 1)]
        line.advance(1)

        assert before == [0, 0]
        assert [line.sample(process)[0] for process in (0, 1)] == [25, 13]


def test_the_sample_of_a_process_that_rests_is_remembered_for_a_while() -> None:
    with timeline(1) as line:
        line.settle_periods()
        line.queue(0, PERIOD // 2)
        line.advance(PERIOD)
        fresh = line.sample(0)

        line.advance(7 * PERIOD)
        old = line.sample(0)
        line.advance(PERIOD)

        assert fresh == old
        assert fresh[0] == 50
        assert line.sample(0)[0] == 0
