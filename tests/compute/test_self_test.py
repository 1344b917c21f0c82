"""Samples of a driver are believed only where two processes were seen on one stamp."""

import pytest

from gpumanager.compute.self_test import PERIODS, SelfTest
from gpumanager.compute.shares import Shares
from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import GpuUtilization, ProcessSample
from gpumanager.gpu.values import GpuUUID
from tests.compute.model_node import Container, Node, elastic, hard

PERIOD = SECOND // 6


def every(number: int) -> GpuUtilization:
    end = number * PERIOD
    return GpuUtilization(end, (ProcessSample(1, end, 30), ProcessSample(2, end, 60)))


def one(number: int) -> GpuUtilization:
    end = number * PERIOD
    return GpuUtilization(end, (ProcessSample(1 + number % 2, end, 90),))


def averaged(number: int) -> GpuUtilization:
    """Of two samples: each process with the stamp of its own last one."""
    end = number * PERIOD
    return GpuUtilization(end, (ProcessSample(1, end - PERIOD, 50), ProcessSample(2, end, 50)))


def test_it_passes_when_two_processes_had_one_stamp_in_most_of_twenty_periods() -> None:
    test = SelfTest()
    changes = [test.enter(every(number), 2) for number in range(PERIODS)]

    assert test.passed
    assert changes == [False] * (PERIODS - 1) + [True]


@pytest.mark.parametrize("answer", [one, averaged])
def test_samples_that_name_one_process_never_pass(answer: object) -> None:
    test = SelfTest()
    assert callable(answer)

    assert not any(test.enter(answer(number), 2) for number in range(1000))
    assert not test.passed


def test_a_container_alone_tells_nothing() -> None:
    test = SelfTest()

    assert not any(test.enter(every(number), 1) for number in range(1000))


def test_it_is_taken_back_when_that_stops() -> None:
    test = SelfTest(passed=True)

    changes = [test.enter(one(number), 2) for number in range(PERIODS)]

    assert not test.passed
    assert sum(changes) == 1


def test_a_process_that_uses_nothing_does_not_count() -> None:
    test = SelfTest()
    for number in range(100):
        end = number * PERIOD
        test.enter(GpuUtilization(end, (ProcessSample(1, end, 90), ProcessSample(2, end, 0))), 2)

    assert not test.passed


class OneWinner(Node):
    """Each sample names the container that had the most since it was named last."""

    def __init__(self, *containers: Container) -> None:
        super().__init__(*containers)
        self.shares = Shares()
        self.had: dict[int, float] = {}

    def _answer(self, gpu: GpuUUID) -> GpuUtilization:
        answer = super()._answer(gpu)
        for sample in answer.samples or ():
            self.had[sample.pid] = self.had.get(sample.pid, 0.0) + sample.percent
        total = sum(sample.percent for sample in answer.samples or ())
        if total == 0:
            return GpuUtilization(self.now, ())
        winner = max(self.had, key=lambda pid: self.had[pid])
        self.had[winner] -= total
        return GpuUtilization(
            self.now, (ProcessSample(winner, self.now, min(100, total)),), min(100, total)
        )


def test_samples_that_name_one_process_correct_nothing() -> None:
    a, b = hard("a", 30), hard("b", 70)
    node = OneWinner(a, b)

    node.tick(300)

    assert (a.scale, b.scale, a.debt, b.debt) == (1.0, 1.0, 0.0, 0.0)
    assert (a.took, b.took) == pytest.approx((0.3, 0.7))


def test_where_the_driver_tells_of_every_process_corrections_begin_by_themselves() -> None:
    a, b = hard("a", 30, factor=0.5), hard("b", 40)
    node = Node(a, b)
    node.shares = Shares()
    node.tick(10)
    before = (a.took, a.scale)

    node.tick(100)

    assert before == pytest.approx((0.6, 1.0))
    assert a.scale == pytest.approx(2.0, rel=0.05)


def test_a_driver_that_stops_to_tell_of_every_process_leaves_no_correction_behind() -> None:
    a, b = hard("a", 30, factor=0.5), hard("b", 40)
    node = OneWinner(a, b)
    node.shares = Shares(every_process=True)

    node.tick(10 * PERIODS)

    assert a.scale == 1.0


def test_time_of_processes_of_no_container_is_not_lent_where_a_sample_names_one() -> None:
    a = elastic("a", 20)
    node = OneWinner(a, hard("b", 30, wants=0.0))
    node.strangers = {999: 0.3}
    rates = []
    for _ in range(600):
        node.tick()
        rates.append(a.rate)

    assert sum(rates[300:]) / 300 == pytest.approx(0.7, abs=0.02)
    assert min(rates[300:]) > 0.6
