"""Which processes count as using a GPU outside of turns, and until when."""

import pytest

from gpumanager.compute.audit import SECOND
from gpumanager.compute.foreign import LATELY_NS, DrawnShare, foreign
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample

NOW = 100 * SECOND
INSIDE = frozenset({1, 2})


def sample(pid: int, percent: int, *, age: int = 0) -> ProcessSample:
    return ProcessSample(pid, NOW - age, percent)


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        ([], {}),
        ([sample(1, 100), sample(2, 40)], {}),
        ([sample(1, 60), sample(7, 40)], {7: NOW + LATELY_NS}),
        ([sample(7, 1)], {7: NOW + LATELY_NS}),
        ([sample(7, 0)], {}),
        ([sample(7, 40, age=SECOND)], {7: NOW - SECOND + LATELY_NS}),
        ([sample(7, 40, age=LATELY_NS)], {}),
        ([sample(7, 40, age=SECOND), sample(7, 2)], {7: NOW + LATELY_NS}),
        ([sample(7, 40), sample(8, 9)], {7: NOW + LATELY_NS, 8: NOW + LATELY_NS}),
    ],
    ids=[
        "nobody",
        "containers that take turns",
        "one beside them",
        "a hundredth is enough",
        "listed without time",
        "a second ago",
        "too long ago",
        "its newest sample counts",
        "two",
    ],
)
def test_who_is_foreign(samples: list[ProcessSample], found: dict[int, int]) -> None:
    assert foreign(samples, NOW, INSIDE) == found


def test_an_answer_of_an_earlier_time_is_no_error_and_changes_no_mean() -> None:
    share = DrawnShare(10**15)
    share.enter(GpuUtilization(0, (ProcessSample(1, 0, 50),), 50), {1})

    assert share.mean.value == 0
