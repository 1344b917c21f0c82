"""Processes of no container, by samples that name one process each."""

import random

import pytest

from gpumanager.compute.audit import FORGETTING_NS, UnknownProcesses
from gpumanager.compute.values import SECOND
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample

PERIOD = SECOND // 6
OURS = frozenset({1, 2})


def asked(
    share: float, every: int = PERIOD, seconds: float = 60, *, seed: int = 1
) -> UnknownProcesses:
    """A driver that names process 9 in so many of its samples, one of ours in the others."""
    unknown, chance, stamp = UnknownProcesses(), random.Random(seed), 0
    for now in range(every, round(seconds * SECOND), every):
        named: dict[int, ProcessSample] = {}
        while stamp + PERIOD <= now:
            stamp += PERIOD
            pid = 9 if chance.random() < share else chance.choice((1, 2))
            named[pid] = ProcessSample(pid, stamp, 100)
        unknown.enter(GpuUtilization(now, tuple(named.values())), OURS)
    return unknown


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("every", [SECOND // 10, PERIOD])
def test_what_they_have_is_the_mean_of_many_samples(share: float, every: int) -> None:
    means = [asked(share, every, seed=seed).share for seed in range(40)]

    assert sum(means) / len(means) == pytest.approx(share, abs=0.03)
    assert max(abs(one - share) for one in means) < 0.3


def test_one_sample_is_not_all_of_the_time() -> None:
    unknown = asked(0.0)

    assert (
        unknown.enter(GpuUtilization(60 * SECOND, (ProcessSample(9, 60 * SECOND, 100),)), OURS)
        < 0.05
    )
    assert unknown.count == 1


def test_an_answer_about_many_samples_is_scaled_to_the_whole_time() -> None:
    unknown = UnknownProcesses()
    for now in range(SECOND, 60 * SECOND, SECOND):
        rows = (ProcessSample(9, now, 100), ProcessSample(1, now - PERIOD, 100))
        unknown.enter(GpuUtilization(now, rows), OURS)

    assert unknown.share == pytest.approx(0.5, abs=0.01)


def test_when_they_have_gone_they_are_forgotten() -> None:
    unknown = asked(0.5)
    for second in range(61, 91):
        unknown.enter(
            GpuUtilization(second * SECOND, (ProcessSample(1, second * SECOND, 100),)), OURS
        )

    assert unknown.share < 0.01
    assert unknown.count == 0


def test_a_driver_that_falls_silent_says_that_the_gpu_is_idle() -> None:
    unknown = asked(0.5)
    before = unknown.share
    unknown.enter(GpuUtilization(60 * SECOND + FORGETTING_NS, ()), OURS)

    assert unknown.share < before / 2
