"""What happened, by comparing two looks; and how it is kept."""

from dataclasses import replace
from typing import Any

import pytest

from gpumanager.monitor.events import MESSAGE_LETTERS, Event, Events, news
from gpumanager.monitor.ports import GpuFitness
from gpumanager.monitor.snapshot import GpuSnapshot, Snapshot
from tests.monitor.monitor_world import claimant
from tests.monitor.node_show import SCHEMA, container, device, gpu

KINDS = {one["const"] for one in SCHEMA["$defs"]["event"]["properties"]["kind"]["oneOf"]}
FIRST = gpu(0)
POD = container("pod", device(FIRST))
CALM = Snapshot(1.0, "node", True, gpus=(GpuSnapshot(FIRST),), containers=(POD,))


def ill(**more: Any) -> Snapshot:
    return replace(CALM, gpus=(GpuSnapshot(FIRST, fitness=GpuFitness(**more)),))


def refused(count: int) -> Snapshot:
    return replace(CALM, containers=(container("pod", device(FIRST, refused=count)),))


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (CALM, CALM, []),
        (CALM, replace(CALM, containers=()), ["container-gone"]),
        (replace(CALM, containers=()), CALM, ["container-came"]),
        (refused(2), refused(5), ["memory-refused"]),
        (refused(5), refused(5), []),
        (CALM, replace(CALM, answered=False), ["driver-silent"]),
        (replace(CALM, answered=False), CALM, ["driver-answers"]),
        (CALM, ill(healthy=False), ["gpu-unhealthy"]),
        (ill(healthy=False), CALM, ["gpu-healthy"]),
        (CALM, ill(xids={79: 1}), ["xid"]),
        (ill(xids={79: 1}), ill(xids={79: 1}), []),
    ],
)
def test_what_differs_between_two_looks_is_what_happened(
    before: Snapshot, after: Snapshot, kinds: list[str]
) -> None:
    assert [one.kind for one in news(before, after)] == kinds
    assert set(kinds) <= KINDS


def test_refusals_are_counted_and_named() -> None:
    (event,) = news(refused(2), refused(5))

    assert (event.count, event.subject, event.warning) == (3, "team/pod/main", True)
    assert event.message == "allocation refused on GPU 0 at its memory limit of 1 GiB"


def test_a_refusal_is_a_warning_and_a_start_that_the_kubelet_tries_again_is_none() -> None:
    events = Events()
    events.refused(claimant(), "not free")
    events.claim_refused(claimant(), "team/gpu", "not free")
    events.postponed(claimant(), "not listed yet")

    assert [one.warning for one in events.newest()] == [False, True, True]


def test_of_a_claim_that_several_pods_share_the_number_of_others_is_told() -> None:
    shared = replace(POD, users=(POD.owner, claimant("eval"), claimant("eval", "side")))

    (event,) = news(replace(CALM, containers=()), replace(CALM, containers=(shared,)))

    assert event.subject == "team/pod/main +1"


def test_what_happens_again_is_counted_with_its_last_time() -> None:
    times = iter((10.0, 10.0, 30.0, 30.0, 9500.0, 9500.0))
    events = Events(clock=lambda: next(times))
    for _ in range(3):
        events.add(Event("memory-refused", "a/b/c", "no", count=2))
        events.add(Event("memory-refused", "a/b/other", "no"))

    found = [(one.subject, one.time, one.count) for one in events.newest()]

    assert found == [("a/b/other", 9500.0, 3), ("a/b/c", 9500.0, 6)]
    assert events.added == 6


def test_the_newest_are_kept_and_none_is_longer_than_it_may_be() -> None:
    events = Events(kept=3)
    for number in range(5):
        events.refused(None, f"{number} " + "x" * 9999)

    found = list(events.newest())

    assert [one.message[:10] for one in found] == ["refused: 4", "refused: 3", "refused: 2"]
    assert max(len(one.message) for one in found) == MESSAGE_LETTERS
