"""Minutes of history: what is kept, for how long, and how little it takes."""

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from gpumanager.gpu.usage.status import GpuStatus
from gpumanager.ids import AllocationID
from gpumanager.monitor.snapshot import ContainerSnapshot, GpuSnapshot, Snapshot
from gpumanager.monitor.web_pages.history import MOST_RINGS, ShareHistory
from gpumanager.units import GIB, MIB, Bytes
from tests.monitor.node_show import container, device, gpu

FIRST, SECOND = gpu(0), gpu(1)


def look(at: float, *containers: ContainerSnapshot, **more: Any) -> Snapshot:
    return Snapshot(at, "node", True, containers=containers, **more)


def paid(seconds: float, **more: Any) -> ContainerSnapshot:
    """A container that has taken so much GPU time."""
    return container("pod", device(FIRST, charged_ns=round(seconds * 1e9), **more))


def percents(history: ShareHistory) -> list[Any]:
    """Of the one series there is."""
    (one,) = history.series()
    found: list[Any] = json.loads(f"[{one.percent}]")
    return found


def test_a_share_is_what_was_paid_for_since_the_look_before() -> None:
    history = ShareHistory()
    for at, seconds in ((10, 0.0), (11, 0.3), (13, 1.5), (14, 1.5)):
        history.note(look(at, paid(seconds, share=0.0)))

    assert percents(history) == [0, 30, 60, 0]
    assert history.ages() == [4, 3, 1, 0]


def test_of_many_looks_a_second_one_is_kept_and_no_time_is_lost() -> None:
    history = ShareHistory()
    for tenth in range(31):
        history.note(look(10 + tenth / 10, paid(tenth / 10 * 0.4, share=0.0)))

    assert percents(history) == [0, 40, 40, 40]


def test_throttling_is_told_of_the_last_minute_and_not_since_the_start() -> None:
    history, late = ShareHistory(), 0
    for second in range(120):
        late += (2 if second < 60 else second % 2) * 10**9  # two processes wait, then one by turns
        history.note(look(10 + second, paid(second, throttled_ns=late)))
        if second == 59:
            assert history.throttled(AllocationID("a-pod-main"), FIRST.uuid) == 100

    assert history.throttled(AllocationID("a-pod-main"), FIRST.uuid) == 50
    assert history.throttled(AllocationID("a-pod-main"), SECOND.uuid) is None


def test_the_oldest_look_gives_way() -> None:
    history = ShareHistory(samples=3)
    for number in range(5):
        history.note(look(number, paid(number * number / 100, share=0.0)))

    assert history.ages() == [2, 1, 0]
    assert percents(history) == [3, 5, 7]


def test_who_came_late_and_who_is_gone_is_missing_and_not_idle() -> None:
    history = ShareHistory(samples=4)
    history.note(look(1))
    history.note(look(2, paid(0.1, share=10.0)))
    history.note(look(3))

    assert percents(history) == [None, 10, None]


def test_who_is_gone_is_forgotten_with_the_last_look_at_it() -> None:
    history = ShareHistory(samples=3)
    history.note(look(1, paid(0.1)))
    history.note(look(2))
    history.note(look(3))
    assert len(list(history.series())) == 1

    history.note(look(4))

    assert list(history.series()) == []


def test_who_never_used_a_gpu_has_no_series() -> None:
    history = ShareHistory()

    history.note(look(1, container("idle", device(FIRST, used=Bytes(0), share=0.0))))

    assert list(history.series()) == []


def test_of_a_whole_gpu_the_driver_tells() -> None:
    history = ShareHistory()
    one = device(SECOND, 100, used=Bytes(0), measured=Bytes(3 * GIB), percent=97)

    history.note(look(1, container("big", one, full=True)))

    (series,) = history.series()
    assert (series.percent, series.memory_mib) == ("97", str(3 * 1024))
    assert series.container == ("team", "big", "main")


def test_a_gpu_that_does_not_tell_is_missing() -> None:
    history = ShareHistory()
    told = GpuSnapshot(FIRST, status=GpuStatus(Bytes(900 * MIB), 42))
    history.note(look(1, gpus=(told,)))
    history.note(look(2, gpus=(replace(told, status=None),)))

    (series,) = history.series()
    assert (series.percent, series.container) == ("42,null", ())
    assert series.memory_mib == "896,null"


def test_a_new_promise_to_the_same_container_does_not_pay_for_the_old_one() -> None:
    history = ShareHistory()
    again = replace(paid(0.2, share=0.0), grant=replace(paid(0).grant, id=AllocationID("a-new")))
    history.note(look(1, paid(50.0, share=0.0)))
    history.note(look(2, again))

    first, second = history.series()
    assert (first.percent, second.percent) == ("0,null", "null,0")


def test_who_reads_slowly_is_not_shown_new_looks_as_old_ones() -> None:
    history = ShareHistory(samples=3)
    other = container("other", device(FIRST, charged_ns=1))
    for number in range(3):
        history.note(look(number, other, paid(number / 10, share=0.0)))
    reading = history.series()
    next(reading)

    history.note(look(3, other, paid(0.9, share=0.0)))

    assert next(reading).percent == "null,10,10"


def test_five_minutes_of_as_many_as_are_kept_are_less_than_a_megabyte() -> None:
    views = [
        container(f"pod-{number}", device(FIRST, charged_ns=number + 1))
        for number in range(MOST_RINGS + 20)
    ]
    tracemalloc.start()
    try:
        history = ShareHistory()
        for at in range(3):  # a ring is made whole
            history.note(look(float(at), *views))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(list(history.series())) == MOST_RINGS
    assert size < 1 << 20


def test_idle_containers_cost_nothing() -> None:
    idle = [container(f"p-{n}", device(FIRST, used=Bytes(0), share=0.0)) for n in range(256)]
    history = ShareHistory()
    tracemalloc.start()
    try:
        for at in range(10):
            history.note(look(float(at), *idle))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size < 20_000


@pytest.mark.parametrize("promised", [1, 99])
def test_a_share_never_leaves_its_byte(promised: int) -> None:
    history = ShareHistory()
    history.note(look(1, paid(0, share=0.0)))
    history.note(look(2, paid(1000.0, share=0.0, ceiling=promised)))

    assert percents(history)[1] == 100
